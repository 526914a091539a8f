"""A plan is tried before it is said: what cannot be carried out is refused, and nothing of it leaves the core."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from libs.contracts.base import Event
from libs.contracts.cluster import TaskPlacement
from libs.contracts.gateway import PolicyChanged
from libs.contracts.placement import (
    GangReserved,
    JobPacked,
    JobPlaced,
    JobPreempted,
    JobQueued,
    LaunchTask,
    ResumedJob,
    TimeSliceStarted,
)
from libs.contracts.runtime import TimerFired
from libs.kernel.replica import ImpossibleEvent
from libs.policies.policy import Policy
from libs.policies.table import POLICIES
from services.placement.core.cell import Cell
from services.placement.core.mechanism import Mechanism, Moment
from services.placement.core.mechanisms.table import MECHANISMS
from tests.unit.placement.placement_case import SAID, PlacementCase


def gang(*indices: int, node_id: str = "n1") -> list[TaskPlacement]:
    return [TaskPlacement(node_id=node_id, gpu_indices=list(indices), first_rank=0)]


def placed(job_id: str, *indices: int, node_id: str = "n1", attempt: int = 1) -> JobPlaced:
    return JobPlaced(job_id=job_id, attempt=attempt, gang=gang(*indices, node_id=node_id), packed_with=[], reason=SAID)


def turn(*, suspended: tuple[str, ...] = (), resumed: tuple[ResumedJob, ...] = ()) -> TimeSliceStarted:
    return TimeSliceStarted(
        server="n1",
        nodes=["n1"],
        number=1,
        ends_s=60.0,
        running=[],
        resumed=list(resumed),
        suspended=list(suspended),
        started=[],
        reason=SAID,
    )


@dataclass
class Dictated(Mechanism):
    """Decides what a test says, once."""

    decisions: list[Event] = field(default_factory=list)
    kind = "dictated"

    def step(self, cell: Cell, moment: Moment) -> Iterator[Event]:
        while self.decisions:
            yield self.decisions.pop(0)


@pytest.fixture
def dictated(monkeypatch: pytest.MonkeyPatch) -> Dictated:
    """`a` runs on GPU 0 of `n1`, which has two; `b` and `c` wait; then a mechanism is in force that a test dictates."""
    mechanism = Dictated()
    monkeypatch.setitem(POLICIES, "told", Policy(name="told", kind=mechanism.kind, describes="What a test says."))
    monkeypatch.setitem(MECHANISMS, mechanism.kind, mechanism)
    return mechanism


def cell_of(mechanism: Dictated) -> PlacementCase:
    case = PlacementCase(n1=2)
    case.submit("a", 1)
    case.start("a")
    case.give(PolicyChanged(policy="told", requested_by="op"))
    case.submit("b", 1)
    case.submit("c", 1)
    return case


def carry_out(case: PlacementCase, mechanism: Dictated, *decisions: Event) -> list[Event]:
    mechanism.decisions.extend(decisions)
    return case.give(TimerFired(service=case.replica.service.name, due_s=case.now_s))


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (placed("b", 0), "GPU n1:0 is held by a"),
        (placed("b", 2), "node n1 has no GPU 2"),
        (placed("b", 0, node_id="n7"), "node n7 is not there"),
        (placed("a", 1), "JobPlaced (attempt 1, this) cannot be said of job a, which is running"),
        (placed("b", 1, attempt=4), "(attempt 4, newer)"),
        (placed("z", 1), "cannot be said of job z, which is unknown"),
        (JobPreempted(job_id="b", attempt=1, reason=SAID), "job b, which is queued"),
        (JobQueued(job_id="a", attempt=1, reason=SAID), "job a, which is running"),
        (GangReserved(job_id="a", attempt=1, node_ids=["n1"], gpus_held=0, reason=SAID), "job a, which is running"),
        (
            JobPacked(job_id="b", attempt=1, with_job="a", with_attempt=1, trial_ends_s=1.0, reason=SAID),
            "job b, which is queued",
        ),
        (turn(suspended=("b",)), "job b is to be suspended and does not run"),
        (turn(resumed=(ResumedJob(job_id="b", gang=gang(1), packed_with=[]),)), "job b is to go on and has not begun"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_carried_out_raises_and_changes_nothing(dictated: Dictated, decision: Event, words: str):
    case = cell_of(dictated)
    before = case.replica.state.jobs["b"].phase, case.replica.state.jobs["a"].gang
    with pytest.raises(ImpossibleEvent, match="was refused") as raised:
        carry_out(case, dictated, decision)
    assert words in str(raised.value)
    assert (case.replica.state.jobs["b"].phase, case.replica.state.jobs["a"].gang) == before


def test_a_live_service_says_the_rest_of_the_plan_and_tells_what_it_refused(dictated: Dictated):
    case = cell_of(dictated)
    told: list[str] = []
    case.replica.on_impossible = lambda envelope, why: told.append(why)
    said = carry_out(case, dictated, placed("b", 0), placed("c", 1))
    assert [type(event) for event in said] == [JobPlaced, LaunchTask]
    assert said[0].subject == "c"
    assert told == ["JobPlaced of b was refused: GPU n1:0 is held by a"]


def test_each_decision_is_tried_on_what_those_before_it_have_left(dictated: Dictated):
    case = cell_of(dictated)
    told: list[str] = []
    case.replica.on_impossible = lambda envelope, why: told.append(why)
    carry_out(case, dictated, placed("b", 1), placed("c", 1))
    assert told == ["JobPlaced of c was refused: GPU n1:1 is held by b"]
