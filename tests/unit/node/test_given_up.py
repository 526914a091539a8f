"""Both ends of a move that is given up: the source goes on from wherever it was, the destination ends."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from libs.contracts.agent import JobExited, JobReady, JobResumed, JobSuspended
from libs.contracts.placement import RestoreTask, ResumeTask, StateSource, StopTask, SuspendTask
from libs.contracts.reasons import Reason
from libs.node.admission import taken
from libs.node.advance import BOUNDARY_PATIENCE_S, Action, Step
from libs.node.fetching import Answer, answer
from libs.node.seen import Seen, Takeover
from libs.node.task import Status, Task, apply_order
from tests.unit.node.test_task import LAUNCH, RESUME, SUSPEND, UP, Case, down

LISTENS, STANDS = replace(UP, harnessed=True), replace(UP, harnessed=True, acknowledged=True)
SOURCE = StateSource(node_id="n2", address="n2", port=1, first_rank=0)
RESTORE = RestoreTask(node_id="n1", job_id="a", attempt=2, from_attempt=1, sources=[SOURCE])
STOP = StopTask(node_id="n1", job_id="a", attempt=2, grace_s=0.0, reason=Reason(code="Test", message=""))
WAITS = replace(LISTENS, takeover=Takeover(ready=True))


class Destination(Case):
    """A task that is to take over from attempt 1."""

    def __init__(self) -> None:
        self.tasks = {}
        self.order(replace(LAUNCH, attempt=2, restores=True))

    @property
    def task(self) -> Task:
        return self.tasks["a.2"]


def source() -> Case:
    case = Case()
    case.see(LISTENS)
    case.order(SUSPEND)
    assert case.see(LISTENS).actions == [Action.ASK]
    return case


def test_a_source_that_is_called_back_before_it_stands_still_goes_on_and_stands_still_for_the_next_move():
    case = source()
    case.order(RESUME)
    assert case.see(LISTENS) == Step(actions=[Action.THAW]), "it has never stood still: nothing is said"
    case.order(SUSPEND)
    assert case.see(LISTENS).actions == [Action.ASK]
    assert [type(fact) for fact in case.see(STANDS).facts] == [JobSuspended]


@pytest.mark.parametrize(("seen", "at_s"), [(STANDS, 1.0), (LISTENS, BOUNDARY_PATIENCE_S)])
def test_a_source_that_stands_still_goes_on_when_the_move_is_given_up(seen: Seen, at_s: float):
    """At a boundary, or where it was stopped because none came."""
    case = source()
    assert [type(fact) for fact in case.see(seen, at_s).facts] == [JobSuspended]
    assert answer(case.task) is Answer.HERE
    case.order(RESUME)
    assert answer(case.task) is Answer.LATER, "its state is about to change"
    assert case.see(seen, 60.0).actions == [Action.THAW]
    assert [type(fact) for fact in case.see(STANDS, 61.0).facts] == [JobResumed]


def test_a_source_that_is_called_back_and_halted_at_once_never_goes_on_and_still_has_its_state():
    case = source()
    case.see(STANDS)
    case.order(RESUME)
    case.order(SUSPEND)
    assert case.see(STANDS) == Step() and answer(case.task) is Answer.HERE


def test_a_destination_stands_still_already_whatever_it_is_told_of_that():
    case = Destination()
    case.see(LISTENS)
    case.order(SuspendTask(node_id="n1", job_id="a", attempt=2))
    assert [type(fact) for fact in case.see(WAITS).facts] == [JobReady]
    case.order(RESTORE)
    assert case.see(WAITS).actions == [Action.FETCH]


@pytest.mark.parametrize("restore", [[], [RESTORE]], ids=["before it is told where the state is", "while it gets it"])
def test_a_destination_that_never_gets_its_state_ends_when_the_move_is_given_up(restore: list[RestoreTask]):
    case = Destination()
    case.see(LISTENS)
    case.see(WAITS)
    for order in restore:
        case.order(order)
    case.see(WAITS)
    case.order(STOP)
    assert case.see(WAITS).actions == [Action.KILL]
    [exited] = case.see(down(None, 9, "signalled")).facts
    assert isinstance(exited, JobExited) and exited.outcome == "stopped"
    assert case.task.status is Status.EXITED


def test_a_destination_that_has_not_started_keeps_no_gpus_from_others_once_the_move_is_given_up():
    case = Destination()
    other = replace(LAUNCH, job_id="b")
    apply_order(case.tasks, other)
    assert taken(case.tasks["b.1"], list(case.tasks.values()))
    case.order(STOP)
    assert [type(fact) for fact in case.see(Seen()).facts] == [JobExited]
    active = [task for task in case.tasks.values() if task.status is not Status.EXITED]
    assert not taken(case.tasks["b.1"], active)


def test_a_source_goes_on_beside_a_destination_on_its_own_gpus_that_has_not_ended_yet():
    """A resize: both are on the same server, and the source is called back before the destination has gone."""
    case = source()
    case.see(STANDS)
    apply_order(case.tasks, replace(LAUNCH, attempt=2, restores=True))
    case.tasks["a.2"].status = Status.READY
    apply_order(case.tasks, STOP)
    apply_order(case.tasks, ResumeTask(node_id="n1", job_id="a", attempt=1))
    active = list(case.tasks.values())
    assert taken(case.task, active), "its memory comes back when that has left"
    case.tasks["a.2"].status = Status.EXITED
    assert not taken(case.task, active[:1])
