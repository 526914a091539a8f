"""Bugs that other schedulers had, as tests under their names, and some of our own that the properties found."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from itertools import cycle
from pathlib import Path

import pytest

from libs.bus import codec
from libs.bus.connect import connect
from libs.bus.port import TopicLayout
from libs.contracts.admission import JobAdmitted, JobRejected
from libs.contracts.catalogue import TERMINAL
from libs.contracts.gateway import JobArrived
from libs.contracts.placement import AttemptFailed, JobPlaced
from libs.contracts.quota import QuotaGranted
from libs.inspect.conservation import conservation
from libs.inspect.replay import refold
from libs.inspect.sources import open_log
from libs.inspect.story import story
from libs.inspect.verify import verify
from libs.sim.options import FailureModel, FaultKind
from libs.sim.simulation import Simulation
from libs.testing.builders import Scenario, Spec, events
from libs.testing.thorough import THOROUGH
from services.roster import SERVICES

ROOT = Path(__file__).parents[2]


def busy_cell(seed: int = 1) -> Scenario:
    """Twenty jobs of two tenants, with failures, cancellations, a drain and a crash."""
    scenario = Scenario(seed=seed).servers(2, v100=6, k80=2).tenant("research", 4)
    scenario.options(failures=FailureModel(attempt_failure_ratio=0.3), start_delay_s=1.0, stop_delay_s=1.0)
    for number in range(20):
        tenant = ("research", "product")[number % 2]
        gpus = 1 + number % 3
        scenario.job(f"job-{number}", gpus, at=number * 11, runs_s=40 + number, tenant=tenant, max_retries=number % 3)
    scenario.cancel("job-3", at=60).cancel("job-8", at=120).drain("v100-000", at=100, until=300)
    return scenario.fault(FaultKind.CRASH, "k80-000", at=150, for_s=60)


@pytest.mark.thorough
def test_kueue_1654_a_restart_does_not_admit_finished_jobs_again():
    """After every step a service (thorough: every one) is restarted from its snapshot: nothing is done twice."""
    undisturbed = busy_cell().run(SERVICES)
    simulation = busy_cell().build(SERVICES)
    turns = cycle(SERVICES)
    while simulation.advance():
        for service in SERVICES if THOROUGH else (next(turns),):
            simulation.restart(service.name)
    assert simulation.log.control == undisturbed.log.control
    admitted = Counter(event.job_id for event in events(simulation, JobAdmitted))
    granted = Counter((event.job_id, event.attempt) for event in events(simulation, QuotaGranted))
    assert set(admitted.values()) == set(granted.values()) == {1}


def test_kueue_10407_never_more_granted_than_the_limit_allows():
    """52 jobs arrive at once for a tenant that may use 2 GPUs."""
    scenario = Scenario().tenant("default", 2).servers(8, v100=64).options(interleaving=3)
    for number in range(52):
        scenario.job(f"job-{number}", runs_s=5.0)
    simulation = scenario.run(SERVICES)
    assert most_granted(simulation) == 2
    assert len(events(simulation, QuotaGranted)) == 52


def most_granted(simulation: Simulation) -> int:
    """Most GPUs that were granted at the same time, from the log."""
    granted: dict[str, int] = {}
    most = 0
    for envelope in simulation.log.control:
        event = envelope.event
        if isinstance(event, QuotaGranted):
            granted[event.job_id] = event.gpus
        elif isinstance(event, (AttemptFailed, *TERMINAL)):
            granted.pop(event.job_id, None)
        most = max(most, sum(granted.values()))
    return most


@pytest.mark.parametrize("interleaving", [None, 1, 2, 3])
def test_kueue_14811_no_quota_is_held_by_nothing(interleaving: int | None):
    """At every moment the tenants are charged for jobs that are there; at the end for none."""
    simulation = busy_cell().options(interleaving=interleaving).build(SERVICES)
    while simulation.advance():
        quota = simulation.replicas["quota"]
        quota.check()
        ended = {event.job_id for event in events(simulation, *TERMINAL)}
        if interleaving is None:
            assert set(quota.state.claims) <= {event.job_id for event in events(simulation, JobArrived)} - ended
    state = simulation.replicas["quota"].state
    assert state.claims == {}
    assert [tenant.used_gpus for tenant in state.tenants.values()] == [0, 0]


def test_kueue_6763_no_choice_depends_on_the_hash_seed():
    """The whole run, in processes with different hash seeds, gives the same log to the byte."""

    def digest(hash_seed: str) -> bytes:
        code = "from tests.properties.test_known_bugs import print_digest; print_digest()"
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, check=True
        ).stdout

    assert digest("1") == digest("2") != b""


def print_digest() -> None:
    """Print a hash over the log of a busy cell; for the test above."""
    import hashlib

    from libs.contracts import wire

    simulation = busy_cell().run(SERVICES)
    digest = hashlib.sha256()
    for envelope in simulation.log.control + simulation.log.orders:
        headers, data = wire.encode(envelope)
        digest.update(repr(headers).encode() + data)
    print(digest.hexdigest())


@pytest.mark.parametrize(
    "spec",
    [Spec().gpus(9), Spec().gpus(5, max_nodes=1), Spec().gpus(1, "h100"), Spec().gpus(6, "k80")],
    ids=["larger than the cluster", "larger than any node", "a type that is not there", "too many of a type"],
)
def test_volcano_1295_what_can_never_fit_is_rejected_at_once(spec: Spec):
    simulation = Scenario().servers(4, v100=8, k80=4).job("a", at=5.0, spec=spec).run(SERVICES)
    (rejected,) = events(simulation, JobRejected)
    assert rejected.reason.code == "NeverFits"
    assert simulation.outcomes["a"].finish_s == 5.0


@pytest.mark.usefixtures("dated_by_sources")
def test_ray_44218_the_history_is_there_after_a_restart(tmp_path: Path):
    """The log of a cell that is gone is opened by a new process: states, stories and accounts are all there."""
    simulation = busy_cell().run(SERVICES)
    path = tmp_path / "log.db"

    async def live() -> None:
        bus = await connect(f"sqlite:///{path}", "lab")
        await bus.create_topics(TopicLayout())
        session = await bus.open_session("all")
        for envelope in simulation.log.control + simulation.log.orders:
            await session.commit([codec.outgoing(envelope)])
        await session.close()
        await bus.close()

    asyncio.run(live())
    with open_log(str(path), cell="lab") as log:
        records = list(log.records())
    folded = refold(records, SERVICES)
    assert {name: folded[name].state_bytes for name in folded} == {
        name: replica.state_bytes for name, replica in simulation.replicas.items()
    }
    assert conservation(records).jobs == conservation(simulation.records()).jobs
    for job in simulation.workload.jobs:
        assert story(records, job.job_id).told[-1].event.removeprefix("Job") in (
            "Succeeded",
            "Cancelled",
            "Abandoned",
        )
    with open_log(str(path), cell="lab") as log:
        assert verify(log, SERVICES).ok


def test_a_preempted_gang_does_not_wait_for_ever_for_its_equal_behind_it():
    """A gang loses a node while an equal gang behind it holds a reservation: neither may block the other.

    The one ahead must not be kept off the GPUs that are reserved for the one behind.
    """
    scenario = Scenario().servers(1, v100=3).job("first", 2, runs_s=1000.0).job("second", 2, at=1.0, runs_s=10.0)
    simulation = scenario.fault(FaultKind.CRASH, "v100-001", at=100.0, for_s=1e4).run(SERVICES)
    assert {job.status for job in simulation.outcomes.values()} == {"SUCCEEDED"}


def test_a_reservation_that_changes_hands_is_used_at_once():
    """GPUs get free in the very moment in which a more urgent job takes over the reservation: it starts."""
    scenario = Scenario().servers(2, v100=3).job("running", 2, runs_s=130.0).job("gang", 3, at=1.0, runs_s=10.0)
    simulation = scenario.job("urgent", 2, at=100.0, runs_s=10.0, priority=5).run(SERVICES)
    placed = [event.job_id for event in events(simulation, JobPlaced)]
    assert placed == ["running", "urgent", "gang"]
    assert simulation.outcomes["urgent"].first_start_s == 130.0
