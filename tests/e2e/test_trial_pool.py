"""A node that is set apart for trials, live: trials go there and wait for it, gangs and other jobs run elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.cli.cell.plan import Command
from libs.client import Client
from libs.contracts.admission import TrialPassed
from libs.contracts.placement import JobPlaced, JobQueued
from libs.contracts.reasons import PendingReason
from libs.testing.leftovers import nothing_left_of
from libs.testing.thorough import cases
from tests.e2e.checking import checked, sanjaya
from tests.e2e.test_rounds import wait_until

pytestmark = pytest.mark.e2e
SCRIPT = Path(__file__).with_name("trial_script.py")
WIDE = 2


class PooledPlan(CellPlan):
    """Node n1 is for all jobs; n2 has one GPU, for trials."""

    def agent_commands(self) -> list[Command]:
        shared, pooled = super().agent_commands()
        return [shared, replace(pooled, argv=[*pooled.argv, "--virtual-gpus", "1", "--pool", "trial"])]


@pytest.fixture(scope="module", params=cases("embedded", thorough=("kafka",)))
def cell(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Cell]:
    folder = tmp_path_factory.mktemp("pool")
    plan = PooledPlan(
        state_dir=folder / "cell",
        agents=2,
        gpus_per_agent=WIDE,
        gateway_port=free_port(),
        kafka="" if request.param == "kafka" else None,
    )
    with Cell(plan) as running:
        sanjaya(running, "settings", "set", "admission.trial_above_gpus", "1")
        yield running
    assert nothing_left_of(folder) == []


def submit(cell: Cell, *options: str, pause_s: float = 0.0, gpus: int = WIDE) -> str:
    command = ("python", str(SCRIPT), "none", "--batches", "4", "--pause", str(pause_s))
    return sanjaya(cell, "submit", "--gpus", str(gpus), "--no-upload", *options, "--", *command).strip()


def where(cell: Cell, *job_ids: str) -> dict[str, list[list[str]]]:
    """{job: nodes of each of its placements}, when all of them have succeeded; the log is checked."""
    for job_id in job_ids:
        sanjaya(cell, "wait", job_id)
    said = [each.event for each in checked(exported(cell))]
    found: dict[str, list[list[str]]] = {job_id: [] for job_id in job_ids}
    for event in said:
        if isinstance(event, JobPlaced) and event.job_id in found:
            found[event.job_id].append([task.node_id for task in event.gang])
    return found


def exported(cell: Cell) -> Path:
    path = cell.plan.state_dir.parent / "log.jsonl"
    with Client(cell.plan.gateway_url) as client:
        path.write_bytes(b"".join(client.export()))
    return path


def test_a_trial_runs_in_the_pool_and_its_gang_and_other_jobs_outside(cell: Cell):
    assert "trial" in next(line for line in sanjaya(cell, "nodes").splitlines() if line.startswith("n2"))
    wide, narrow = submit(cell), submit(cell, gpus=1)
    assert where(cell, wide, narrow) == {wide: [["n2"], ["n1"]], narrow: [["n1"]]}


def test_a_trial_waits_for_the_full_pool_and_why_says_so(cell: Cell):
    first = submit(cell, pause_s=5.0)
    second = submit(cell)
    wait_until(lambda: "needs 1 GPU of the pool 'trial'; 0 are free" in sanjaya(cell, "why", second))
    assert where(cell, first, second) == {first: [["n2"], ["n1"]], second: [["n2"], ["n1"]]}
    said = [each.event for each in checked(exported(cell))]
    told = next(event for event in said if isinstance(event, JobQueued) and event.job_id == second)
    assert (told.reason.code, told.waits_for) == (PendingReason.TRIAL_PENDING, PendingReason.INSUFFICIENT_GPUS)
    passed = [event.job_id for event in said if isinstance(event, TrialPassed)]
    assert [passed.count(job) for job in (first, second)] == [1, 1]


def test_while_the_pool_is_drained_trials_run_elsewhere(cell: Cell):
    sanjaya(cell, "drain", "n2", "--reason", "a test")
    job = submit(cell)
    assert where(cell, job) == {job: [["n1"], ["n1"]]}
    sanjaya(cell, "undrain", "n2")
