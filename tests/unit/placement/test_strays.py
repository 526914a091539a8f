"""Attempts whose node was thought lost: what is known of their overlap with newer ones when these fail."""

from __future__ import annotations

from libs.contracts.base import Event
from libs.contracts.introspection import NodeLost
from libs.contracts.placement import AttemptFailed, JobPlaced, Overlap, StopTask
from libs.testing.core_case import only
from tests.unit.placement.placement_case import PlacementCase


def lost(case: PlacementCase, node_id: str = "n1", incarnation: int = 1) -> list[Event]:
    return case.give(NodeLost(node_id=node_id, silent_s=20.0, incarnation=incarnation))


def placed_again(**spec: object) -> PlacementCase:
    """Attempt 1 of job a was on n1, which is lost; attempt 2 is on n2."""
    case = PlacementCase(n1=1, n2=1, n3=1)
    case.submit("a", **spec)
    case.start("a")
    assert only(lost(case), JobPlaced).attempt == 2
    case.start("a", "n2", attempt=2)
    return case


def fails(case: PlacementCase, node_id: str = "n2", attempt: int = 2) -> AttemptFailed:
    return only(case.exit("a", node_id, attempt=attempt, code=1), AttemptFailed)


def test_a_failure_while_the_lost_node_is_silent_names_the_attempt_that_may_still_run_there():
    failed = fails(placed_again())
    assert failed.overlap == Overlap(attempt=1, node_id="n1", seen=False)
    assert failed.reason.message == (
        "the task on n2 ended with exit code 1 (exited); "
        "attempt 1 may have run beside it on node n1, which was thought lost"
    )
    assert failed.reason.numbers == {"overlapped_attempt": 1}


def test_a_failure_after_the_node_came_back_with_the_older_attempt_names_it_as_seen():
    case = placed_again()
    assert only(case.rejoin("n1", 1, tasks=[("a", 1)]), StopTask).attempt == 1
    assert fails(case).overlap == Overlap(attempt=1, node_id="n1", seen=True)


def test_it_does_also_when_the_older_attempt_has_ended_meanwhile():
    case = placed_again()
    case.rejoin("n1", 1, tasks=[("a", 1)])
    assert case.exit("a", "n1", code=None, signal=15, outcome="stopped") == []
    assert fails(case).overlap == Overlap(attempt=1, node_id="n1", seen=True)


def test_an_end_of_the_older_attempt_that_is_told_late_may_have_been_beside_the_newer_one():
    case = placed_again()
    assert case.exit("a", "n1", code=1) == [], "no verdict follows from the older attempt itself"
    assert fails(case).overlap == Overlap(attempt=1, node_id="n1", seen=False)


def test_a_node_that_comes_back_without_the_task_leaves_a_doubt_about_the_attempt_that_ran_then_alone():
    case = placed_again(max_retries=3)
    case.rejoin("n1", 1, tasks=[])
    assert fails(case).overlap == Overlap(attempt=1, node_id="n1", seen=False)
    assert case.replica.state.jobs["a"].strays == []


def test_the_attempt_after_the_end_of_the_older_one_is_judged_by_itself():
    case = placed_again()
    case.exit("a", "n1", code=None, signal=15, outcome="stopped")
    assert only(lost(case, "n2"), JobPlaced).attempt == 3
    case.exit("a", "n2", attempt=2, code=None, signal=9, outcome="interrupted")
    # Attempt 2 ended at an unknown time, perhaps while attempt 3 ran; attempt 1 was over before that was placed.
    assert fails(case, "n3", attempt=3).overlap == Overlap(attempt=2, node_id="n2", seen=False)


def test_an_older_attempt_that_ended_before_the_newer_was_placed_overlaps_nothing():
    case = PlacementCase(n1=1)
    case.submit("a")
    case.start("a")
    lost(case)
    case.exit("a", "n1", code=None, signal=9, outcome="interrupted")
    assert only(case.rejoin("n1", 1, tasks=[]), JobPlaced).attempt == 2
    assert fails(case, "n1").overlap is None


def test_an_older_attempt_that_is_being_stopped_as_the_newer_is_placed_overlaps_it():
    case = PlacementCase(n1=1)
    case.submit("a")
    case.start("a")
    lost(case)
    assert only(case.rejoin("n1", 1, tasks=[("a", 1)]), JobPlaced).attempt == 2
    assert fails(case, "n1").overlap == Overlap(attempt=1, node_id="n1", seen=True)


def test_of_several_older_attempts_the_one_that_was_seen_is_named():
    case = placed_again()
    lost(case, "n2")
    case.start("a", "n3", attempt=3)
    case.rejoin("n2", 1, tasks=[("a", 2)])
    assert fails(case, "n3", attempt=3).overlap == Overlap(attempt=2, node_id="n2", seen=True)


def test_a_gang_with_an_interrupted_task_was_interrupted_whatever_its_peers_died_of():
    case = PlacementCase(n1=1, n2=1)
    case.submit("a", 2)
    case.exit("a", "n1", code=1)
    failed = only(case.exit("a", "n2", code=None, outcome="interrupted"), AttemptFailed)
    assert (failed.node_id, failed.outcome) == ("n2", "interrupted")


def test_without_a_lost_node_nothing_overlaps():
    case = PlacementCase(n1=1)
    case.submit("a")
    failed = only(case.exit("a", "n1", code=1), AttemptFailed)
    assert failed.overlap is None and failed.reason.numbers == {}
