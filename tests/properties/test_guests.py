"""Guests beside owners: algorithm 1 against a plain reference, and what holds in every cell with guests."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from msgspec.structs import replace

from libs.contracts import settings
from libs.contracts.agent import JobStarted
from libs.contracts.base import Event
from libs.contracts.catalogue import TERMINAL
from libs.contracts.cluster import TaskPlacement, width_of
from libs.contracts.gateway import SettingChanged, TenantConfigured
from libs.contracts.placement import (
    AttemptFailed,
    JobCancelled,
    JobPlaced,
    JobSucceeded,
    Role,
    UpgradeOffered,
    UpgradeWithdrawn,
)
from libs.contracts.quota import JobUpgraded
from libs.inspect.conservation import conservation
from libs.inspect.sentences import sentence
from libs.inspect.verify import verify
from libs.sim.options import FailureModel
from libs.sim.simulation import Simulation
from libs.testing.builders import Scenario, events, log_of
from libs.testing.core_case import node
from libs.testing.effort import searching
from libs.testing.standing import none_is_left_standing
from libs.testing.strategies import cells_with_guests
from libs.testing.thorough import THOROUGH
from services.roster import SERVICES
from tests.properties.algorithm_one import Cell, Job, Place
from tests.properties.test_whole_system import WATCHED
from tests.unit.placement.guests_case import GIB, GuestsCase

CLUSTERS = 2000 if THOROUGH else 60
"""Random clusters and queues that are compared with the reference."""
BATCH = 20
"""Of them in one test."""
EVENTS = 30
TENANTS = ("a", "b", "c")
ORDERS = ("antman", "backfill", "strict_fifo")
"""Policies under which no owner makes room for another, so that guests alone may keep one waiting."""
YIELD_S = settings.default("placement", "yield_s")
few = searching(by_default=6, thorough=100)


def places_of(gang: list[TaskPlacement]) -> list[Place]:
    return [(task.node_id, index) for task in gang for index in task.gpu_indices]


class Compared:
    """A placement core and the reference, told the same."""

    def __init__(self, seed: int) -> None:
        luck = self.luck = random.Random(seed)
        sizes = {f"n{number}": luck.choice([1, 2, 4, 4, 8]) for number in range(luck.randint(1, 6))}
        racks = {server: luck.choice(["r1", "r2"]) for server in sizes}
        quotas = {tenant: luck.randint(2, 16) for tenant in TENANTS}
        self.case, self.reference = GuestsCase(), Cell(racks, sizes, quotas)
        self.case.give(SettingChanged(service="placement", name="locality_relax_s", value=0, requested_by="op"))
        for tenant, gpus in quotas.items():
            self.case.give(TenantConfigured(tenant=tenant, gpu_limit=gpus, requested_by="op"))
        for server, gpus in sizes.items():
            joined = node(server, gpus, rack=racks[server], remaps=True)
            self.case.give(replace(joined, scales_memory="all", scales_compute=True, spill_bytes=64 * GIB))

    def submit(self, number: int) -> None:
        luck, name = self.luck, f"job-{number}"
        tenant, priority = luck.choice(TENANTS), luck.choice([0, 0, 1])
        job = Job(name, tenant, luck.choice([1, 1, 2, 3, 4, 6]), luck.random() < 0.5, (-priority, number))
        if job.guest:
            self.measure()
        self.reference.jobs[name] = job
        submit = self.case.guest if job.guest else self.case.submit
        self.compare(submit(name, job.gpus, tenant=tenant, priority=priority))

    def measure(self) -> None:
        """Samples of all GPUs, younger than what runs there; each may bring a guest that waits to that GPU."""
        for server, gpus in self.reference.gpus.items():
            for index, gpu in enumerate(gpus):
                self.case.now_s += 0.25
                gpu.measured, gpu.later = self.luck.choice([0.1, 0.2, 0.4, 0.7, 0.9]), 0
                self.compare(self.case.load(index, gpu.measured, server), owners=False)

    def end_one(self) -> None:
        running = [job for job in self.reference.jobs.values() if job.places]
        if running:
            job = self.luck.choice(running)
            servers = list(dict.fromkeys(server for server, _ in job.places))
            self.reference.leave(job.name)
            for server in servers[:-1]:
                self.case.exit(job.name, server)
            self.compare(self.case.exit(job.name, servers[-1]))

    def compare(self, said: Sequence[Event], *, owners: bool = True) -> None:
        """What follows is the same; nothing follows for owners from how busy GPUs are."""
        placed = [event for event in said if isinstance(event, JobPlaced)]
        expected = (self.reference.give_to_owners() if owners else []) + self.reference.give_to_guests()
        assert [(event.job_id, places_of(event.gang)) for event in placed] == expected
        for event in placed:
            assert (event.role == Role.GUEST) == self.reference.jobs[event.job_id].guest
            for task in event.gang:
                self.case.start(event.job_id, task.node_id)
        kept = {name: each.parts for name, each in self.case.replica.state.reservations.items()}
        assert kept == self.reference.reserved


@pytest.mark.parametrize("batch", range(CLUSTERS // BATCH))
def test_algorithm_one_chooses_as_the_reference_does(batch: int):
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        compared = Compared(seed)
        for number in range(EVENTS):
            compared.end_one() if compared.luck.random() < 0.35 else compared.submit(number)


def watched_run(scenario: Scenario) -> Simulation:
    """Run with every core's invariants, and no tenant's use above its quota, checked after every step."""

    def check(running: Simulation) -> None:
        for replica in running.replicas.values():
            replica.check()
        for name, tenant in running.replicas["quota"].state.tenants.items():
            assert tenant.limit_gpus is None or tenant.used_gpus <= tenant.limit_gpus, name

    simulation = scenario.build(WATCHED)
    try:
        simulation.run(check)
    finally:
        for offset, envelope in enumerate(simulation.log.control):
            note(
                f"#{offset} {envelope.time_s:g} {envelope.source} {envelope.event.subject}: {sentence(envelope.event)}"
            )
    return simulation


@few
@given(cells_with_guests())
def test_every_job_ends_once_gangs_are_whole_no_gpu_has_two_owners_and_the_log_replays(scenario: Scenario):
    simulation = watched_run(scenario)
    books = conservation(simulation.records())
    assert books.violations == [] and books.gpus_held == 0
    none_is_left_standing(simulation)
    ended = [event.job_id for event in events(simulation, *TERMINAL)]
    assert sorted(ended) == sorted(job.job_id for job in simulation.workload.jobs)
    wanted = {job.job_id: job.spec.gpus.count for job in simulation.workload.jobs}
    for placed in events(simulation, JobPlaced):
        assert width_of(placed.gang) == wanted[placed.job_id]
    result = verify(log_of(simulation), SERVICES)
    assert result.ok, "\n".join(result.first.lines() if result.first else [])


@few
@given(cells_with_guests(policies=ORDERS, quiet=True), st.sampled_from([0.0, 5.0, 25.0]))
def test_no_guest_delays_the_start_of_an_owner_by_more_than_its_time_to_yield(scenario: Scenario, suspend_s: float):
    scenario.options(suspend_delay_s=suspend_s, failures=FailureModel(), interleaving=None)
    simulation = watched_run(scenario)
    options, placed = simulation.options, dict[tuple[str, int], float]()
    own_s = options.start_delay_s + options.stop_delay_s + options.checkpoint_overhead_s
    for envelope in simulation.log.control:
        event = envelope.event
        if isinstance(event, JobPlaced) and event.role == Role.OWNER:
            placed[event.job_id, event.attempt] = envelope.time_s
        elif isinstance(event, JobStarted) and (event.job_id, event.attempt) in placed:
            assert envelope.time_s - placed[event.job_id, event.attempt] <= YIELD_S + own_s


@few
@given(cells_with_guests(quiet=True))
def test_no_upgrade_overtakes_an_older_one_of_its_tenant(scenario: Scenario):
    scenario.options(interleaving=None)
    simulation = watched_run(scenario)
    tenants = {job.job_id: job.spec.tenant for job in simulation.workload.jobs}
    order = {job_id: number for number, job_id in enumerate(simulation.lives.jobs)}
    standing: dict[str, None] = {}
    for event in (envelope.event for envelope in simulation.log.control):
        if isinstance(event, UpgradeOffered):
            standing[event.job_id] = None
        elif isinstance(event, JobUpgraded):
            older = [job_id for job_id in standing if order[job_id] < order[event.job_id]]
            assert event.tenant not in [tenants[job_id] for job_id in older]
            standing.pop(event.job_id, None)
        elif isinstance(event, UpgradeWithdrawn | JobPlaced | AttemptFailed | JobSucceeded | JobCancelled):
            standing.pop(event.job_id, None)
