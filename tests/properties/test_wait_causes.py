"""Every second of a wait has one cause, under every policy, and no cause contradicts the state of the cell."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.contracts.admission import JobHeldBack
from libs.contracts.base import Event
from libs.contracts.failure_analysis import RetryScheduled
from libs.contracts.gateway import JobArrived, JobPauseRequested, JobResumeRequested
from libs.contracts.placement import AttemptFailed, JobQueued
from libs.contracts.quota import OpportunityGranted, QuotaDeferred, QuotaGranted
from libs.contracts.reasons import CAUSES, PendingReason
from libs.lifecycle import Lives
from libs.policies.policy import Kind
from libs.policies.table import POLICIES
from libs.sim.simulation import Simulation
from libs.testing.builders import Scenario
from libs.testing.strategies import crowded_cells, scenarios
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job, Phase
from services.placement.core.lifecycle.queue import place_of
from services.placement.core.lifecycle.reservations import before, kept
from services.roster import SERVICES
from tests.properties.effort import whole_system

NOT_YET = PendingReason.NOT_YET_EVALUATED
FREE_ELSEWHERE = {
    PendingReason.GANG_ACQUIRING,
    PendingReason.ACQUIRE_BACKOFF,
    PendingReason.LOCALITY_RELAXING,
    PendingReason.GANG_FRAGMENTED,
}
"""Causes of a job for which enough GPUs are free, and not where it needs them."""
AFTER_CAPACITY = {
    PendingReason.INSUFFICIENT_GPUS,
    PendingReason.INSUFFICIENT_CPUS,
    PendingReason.INSUFFICIENT_MEMORY,
    *FREE_ELSEWHERE,
}
"""Causes of a job that would fit were all usable servers empty."""


def cells(policy: str) -> st.SearchStrategy[Scenario]:
    """Of all sizes and with all faults, and crowded ones; other policies may come into force in between."""
    return st.one_of(scenarios(policy=policy), crowded_cells(policy=policy))


@dataclass
class Said:
    """What has been said of one job's wait, and the seconds counted by hand."""

    cause: str = NOT_YET
    behind: str = ""
    line: str = ""
    held: bool = False
    waits_s: dict[str, float] = field(default_factory=dict)


class ByHand:
    """Counts every stretch of time between two events, job by job: the long way."""

    def __init__(self) -> None:
        self.lives = Lives()
        self.said: dict[str, Said] = {}
        self.leaders: dict[str, str] = {}
        self.now_s = 0.0

    def take(self, event: Event, time_s: float) -> None:
        passed_s = time_s - self.now_s
        if passed_s > 0:
            for life in self.lives.jobs.values():
                if not life.has_ended and not life.books.is_placed:
                    waits_s, cause = self.said[life.job_id].waits_s, self.cause_of(life.job_id)
                    waits_s[cause] = waits_s.get(cause, 0.0) + passed_s
        self.now_s = max(self.now_s, time_s)
        if isinstance(event, JobArrived):
            self.said.setdefault(event.job_id, Said())
        said = self.said.get(event.subject)
        if said is not None:
            self._hear(said, event)
        self.lives.take(event, time_s)

    def _hear(self, said: Said, event: Event) -> None:
        if isinstance(event, JobQueued | QuotaDeferred | JobHeldBack):
            cause = event.reason.code if event.reason.code in CAUSES else NOT_YET
            said.cause, said.behind, said.line = cause, "", ""
        elif isinstance(event, QuotaGranted | OpportunityGranted | AttemptFailed | RetryScheduled):
            said.cause, said.behind, said.line = NOT_YET, "", ""
        elif isinstance(event, JobPauseRequested | JobResumeRequested) and not self._ends(event):
            said.held = isinstance(event, JobPauseRequested)
        if isinstance(event, JobQueued):
            said.behind, said.line = event.behind, "" if event.leads else event.line
            if event.leads:
                self.leaders[event.line] = event.job_id

    def _ends(self, event: Event) -> bool:
        return self.lives.jobs[event.subject].is_cancelled

    def cause_of(self, job_id: str) -> str:
        """Of the job, or of the one that it is behind."""
        said = self.said[job_id]
        if said.held:
            return PendingReason.ON_HOLD
        if said.cause != PendingReason.BEHIND:
            return said.cause
        return self.cause_of(self.leaders[said.line] if said.line else said.behind)


@pytest.mark.parametrize("policy", POLICIES)
@whole_system
@given(st.data())
def test_seconds_by_cause_are_the_wait(policy: str, data: st.DataObject):
    scenario = data.draw(cells(policy))
    scenario_lags = scenario.build(SERVICES).options.interleaving is not None
    by_hand = ByHand()
    simulation = scenario.run(SERVICES)
    for record in simulation.records():
        by_hand.take(record.envelope.event, record.envelope.time_s)
        now_s = by_hand.now_s
        life = by_hand.lives.jobs.get(record.envelope.event.subject)
        if life is not None and not life.has_ended and not life.books.is_placed:
            waited_s = life.books.queue_s + now_s - life.books.since_s
            assert sum(life.books.waits_until(now_s).values()) == pytest.approx(waited_s, abs=1e-3)
    for job_id, life in by_hand.lives.jobs.items():
        books, where = life.books, f"{job_id} under {policy}"
        assert sum(books.waits_s.values()) == pytest.approx(books.queue_s, abs=1e-3), where
        assert books.waits_s.keys() <= CAUSES - {PendingReason.BEHIND}, where
        if scenario_lags:  # the log is not in the order of time
            continue
        counted = {cause: spent_s for cause, spent_s in by_hand.said[job_id].waits_s.items() if spent_s > 1e-6}
        assert {c: s for c, s in books.waits_s.items() if s > 1e-6} == pytest.approx(counted, abs=1e-3), where
        assert 0 <= books.fair_share_s + books.fragmentation_s <= books.queue_s + 1e-3, where


@pytest.mark.parametrize("policy", POLICIES)
@whole_system
@given(st.data())
def test_no_cause_contradicts_the_state(policy: str, data: st.DataObject):
    data.draw(cells(policy)).build(SERVICES).run(look)


def look(simulation: Simulation) -> None:
    """Every queued job waits for what it was told, once the services have read all there is."""
    simulation.dispatcher.settle()
    if simulation.dispatcher.behind:
        return
    cell: Cell = simulation.replicas["placement"].state
    for job in cell.jobs.values():
        if job.phase is Phase.QUEUED and not job.held and not job.guest:
            agrees(cell, job, job.wait_code.partition(":")[0])


def agrees(cell: Cell, job: Job, cause: str) -> None:
    gpus, where = job.spec.gpus.count, f"{job.job_id}: {job.wait_code} under {cell.policy}"
    healthy, free = most_healthy(cell, job), most_free(cell, job)
    assert (healthy < gpus) or cause not in (PendingReason.HEALTHY_GPUS_MISSING, PendingReason.FEATURE_MISSING), where
    assert (healthy >= gpus) or cause not in AFTER_CAPACITY, where
    if cause == PendingReason.INSUFFICIENT_GPUS:
        assert free < gpus, where
    if cause in FREE_ELSEWHERE:
        assert free >= gpus, where
    if cause == PendingReason.GANG_ACQUIRING:
        assert job.job_id in cell.reservations, where
    if cause == PendingReason.ACQUIRE_BACKOFF:
        assert job.job_id not in cell.reservations and job.job_id in cell.acquiring, where
    if cause == PendingReason.FAIR_SHARE:
        assert POLICIES[cell.policy].kind != Kind.ORDER, where
    if cause == PendingReason.BEHIND:
        others = [other for other in cell.jobs.values() if other.phase is Phase.QUEUED or other.suspended]
        assert any(place_of(cell, other) < place_of(cell, job) for other in others), where


def usable(cell: Cell, job: Job) -> list[tuple[str, dict[str, int], dict[str, int]]]:
    """(Node, healthy, free GPUs by type) of what the job may use."""
    accepts = job.spec.gpus.types or sorted({gpu.gpu_type for node in cell.nodes.values() for gpu in node.gpus})
    return [
        (
            node.node_id,
            {gpu_type: node.capacity(gpu_type) for gpu_type in accepts},
            {gpu_type: len(node.free(gpu_type)) for gpu_type in accepts},
        )
        for node in cell.nodes.values()
        if node.usable and all(need in node.features for need in job.spec.needs)
    ]


def most_healthy(cell: Cell, job: Job) -> int:
    nodes = usable(cell, job)
    types = {gpu_type: None for _, healthy, _ in nodes for gpu_type in healthy}
    return max((sum(healthy[gpu_type] for _, healthy, _ in nodes) for gpu_type in types), default=0)


def most_free(cell: Cell, job: Job) -> int:
    """Without those that are kept for gangs before it."""
    nodes = usable(cell, job)
    types = {gpu_type: sum(free[gpu_type] for _, _, free in nodes) for _, healthy, _ in nodes for gpu_type in healthy}
    for reservation in before(cell, job):
        if reservation.gpu_type in types:
            types[reservation.gpu_type] -= sum(map(len, kept(cell, reservation).values()))
    return max(types.values(), default=0)
