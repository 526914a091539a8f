"""What a simulated node makes of delays and troubles: as a live one would."""

import pytest

from libs.contracts.agent import JobExited, JobStarted, JobSuspended, NodeJoined, NodeLeaving, NodeLeft
from libs.contracts.base import Event
from libs.contracts.placement import RestoreTask, StateSource, StopTask, SuspendTask
from libs.contracts.reasons import Reason
from libs.node.advance import BOUNDARY_PATIENCE_S
from libs.node.fetching import FETCH_PATIENCE_S, FETCH_RETRY_S, Answer
from libs.node.seen import Ended
from libs.node.task import LEAVING_PATIENCE_S
from libs.sim.options import Options
from libs.testing.builders import launch
from tests.properties.test_two_bodies import History, Life, by_the_simulated_node

FOREVER = Life(lasts_s=None, ended=Ended(exit_code=0, signal=None, outcome="exited"))
SUSPEND = SuspendTask(node_id="n1", job_id="a", attempt=1)
SOURCE = StateSource(node_id="n2", address="n2", port=1, first_rank=0)
RESTORE = RestoreTask(node_id="n1", job_id="a", attempt=2, from_attempt=1, sources=[SOURCE])


def stop(grace_s: float) -> StopTask:
    return StopTask(node_id="n1", job_id="a", attempt=1, grace_s=grace_s, reason=Reason(code="Test", message=""))


def said(*steps: tuple[float, object], source: Answer = Answer.HERE, **options: float) -> list[tuple[float, Event]]:
    """What the node says when it gets orders, and troubles by their names, at these times."""
    history = History(
        options=Options(**options),
        steps=tuple((at, str(it), None) if isinstance(it, str) else (at, "order", it) for at, it in steps),
        lives={("a", 1): FOREVER, ("a", 2): FOREVER},
        source=((0.0, source),),
    )
    return by_the_simulated_node(history).said


def test_a_boundary_that_does_not_come_is_not_waited_for():
    facts = said((1.0, launch("a", "true")), (2.0, SUSPEND), suspend_delay_s=100.0)
    [(at_s, fact)] = [each for each in facts if isinstance(each[1], JobSuspended)]
    assert at_s == 2.0 + BOUNDARY_PATIENCE_S
    assert isinstance(fact, JobSuspended) and (fact.parked, fact.delay_s) == (False, BOUNDARY_PATIENCE_S)


@pytest.mark.parametrize(("grace_s", "ends_s", "signal"), [(10.0, 5.0, 15), (2.0, 4.0, 9), (0.0, 2.0, 9)])
def test_a_stop_takes_its_delay_and_no_longer_than_its_grace(grace_s: float, ends_s: float, signal: int):
    facts = said((1.0, launch("a", "true")), (2.0, stop(grace_s)), stop_delay_s=3.0)
    at_s, fact = facts[-1]
    assert isinstance(fact, JobExited) and (at_s, fact.outcome, fact.signal) == (ends_s, "stopped", signal)


def test_a_task_that_is_stopped_while_it_starts_is_started_first():
    facts = said((1.0, launch("a", "true")), (2.0, stop(10.0)), start_delay_s=5.0)
    assert [(at_s, type(fact)) for at_s, fact in facts[1:]] == [(6.0, JobStarted), (6.0, JobExited)]


def test_a_source_that_never_stands_still_is_given_up():
    facts = said((1.0, launch("a", "true", attempt=2, restores=True)), (2.0, RESTORE), source=Answer.LATER)
    at_s, fact = facts[-1]
    assert isinstance(fact, JobExited) and fact.outcome == "restore_failed"
    assert 2.0 + FETCH_PATIENCE_S < at_s <= 2.0 + FETCH_PATIENCE_S + FETCH_RETRY_S


def test_a_source_that_has_ended_refuses_at_once():
    facts = said((1.0, launch("a", "true", attempt=2, restores=True)), (2.0, RESTORE), source=Answer.NEVER)
    at_s, fact = facts[-1]
    assert isinstance(fact, JobExited) and (at_s, fact.outcome, fact.signal) == (2.0, "restore_failed", 9)
    assert fact.stderr_tail == "simulated: attempt 1 of a is not here"


def test_what_was_being_started_when_its_node_died_is_started_again():
    facts = said((1.0, launch("a", "true")), (2.0, "crash"), (10.0, "join"), start_delay_s=5.0)
    assert [(at_s, type(fact)) for at_s, fact in facts] == [(0.0, NodeJoined), (10.0, NodeJoined), (15.0, JobStarted)]
    assert [len(fact.tasks) for _, fact in facts if isinstance(fact, NodeJoined)] == [0, 1]


def test_what_ran_when_its_node_died_is_lost_when_its_agent_sees_that():
    facts = said((1.0, launch("a", "true")), (4.0, "crash"), (10.0, "join"))
    at_s, fact = facts[-1]
    assert isinstance(fact, JobExited) and (at_s, fact.outcome, fact.signal, fact.ran_s) == (10.0, "lost", 9, 9.0)


@pytest.mark.parametrize(("stop_delay_s", "left_s"), [(3.0, 5.0), (9.0, 11.0)])
def test_an_agent_leaves_when_its_tasks_have_ended(stop_delay_s: float, left_s: float):
    facts = said((1.0, launch("a", "true")), (2.0, "leave"), (4.0, "join"), stop_delay_s=stop_delay_s)
    assert [(at_s, type(fact)) for at_s, fact in facts[2:]] == [
        (2.0, NodeLeaving),
        (left_s, JobExited),
        (left_s, NodeLeft),
        (left_s, NodeJoined),
    ]


def test_an_agent_that_leaves_does_not_wait_for_ever():
    """A task that takes longer to start is adopted when the agent is back."""
    facts = said((1.0, launch("a", "true")), (2.0, "leave"), (90.0, "join"), start_delay_s=50.0)
    assert [(at_s, type(fact)) for at_s, fact in facts[1:]] == [
        (2.0, NodeLeaving),
        (2.0 + LEAVING_PATIENCE_S, NodeLeft),
        (90.0, NodeJoined),
        (90.0, JobStarted),
        (90.0, JobExited),
    ]
