"""A move that is given up leaves nothing behind it that waits for ever."""

from __future__ import annotations

import pytest

from libs.contracts import settings
from libs.contracts.agent import JobMovable, JobReady, JobSettingUp, JobSuspended
from libs.contracts.base import Event
from libs.contracts.gateway import JobCancelRequested, PolicyChanged, TenantConfigured
from libs.contracts.introspection import JobStalled
from libs.contracts.migration import MigrationStarted
from libs.contracts.placement import (
    OWNER,
    DestinationReserved,
    JobPlaced,
    JobPreempted,
    JobSucceeded,
    MoveAbandoned,
    RoundStarted,
    TimeSliceStarted,
)
from libs.contracts.runtime import TimerFired
from libs.testing.core_case import node, only
from tests.unit.placement.placement_case import SAID
from tests.unit.placement.rounds_case import RoundsCase
from tests.unit.placement.test_moves import MoveCase, orders

START_LIMIT_S = settings.default(OWNER, "start_limit_s")
TIMER = TimerFired(service=OWNER, due_s=0.0)


def test_a_suspended_job_whose_move_is_given_up_under_shares_goes_on_where_its_processes_are_or_begins_anew():
    """While it moved it had no place in a round: on another server its processes could not go on."""
    case = RoundsCase("gandiva", n1=1)
    case.submit("a")
    case.start("a")
    case.give(JobMovable(job_id="a", attempt=1, node_id="n1"))
    assert only(case.submit("b"), TimeSliceStarted).suspended == ["a"]
    case.give(node("n2", 1))
    moves = MigrationStarted(
        migration_id="m-1", job_id="a", attempt=1, from_nodes=["n1"], to_nodes=["n2"], must_leave=False, reason=SAID
    )
    assert only(case.give(moves), DestinationReserved).gang[0].node_id == "n2"
    said = case.heard(case.give(PolicyChanged(policy="max_min_fairness", requested_by="op")))
    begun = only(said, RoundStarted)
    assert (begun.renewed, begun.leases) == (["b"], [])

    said = case.heard(case.exit("a", "n2", attempt=2, code=1, outcome="restore_failed"))
    assert only(said, MoveAbandoned)
    assert [event for event in said if isinstance(event, TimeSliceStarted)] == []
    assert case.next_round() == ["a"] and case.where("a") == {"n2": [0]}


def test_the_rest_of_a_gang_that_was_halted_for_a_move_goes_on_when_its_first_task_has_done_its_work():
    """It has taken its last step before it stood still; the others are behind it by that step, or by their ends."""
    case = MoveCase(4, n1=2, n2=2, n3=1, n4=1, n5=1, n6=1)
    assert case.sources == ["n1", "n2"]
    case.ask("n3", "n4", "n5", "n6")
    for node_id in ("n3", "n4", "n5", "n6"):
        case.start("a", node_id, attempt=2)
        case.give(JobReady(job_id="a", attempt=2, node_id=node_id))
    case.give(JobSuspended(job_id="a", attempt=1, node_id="n2", parked=True))
    outputs = case.exit("a", "n1")
    assert only(outputs, MoveAbandoned).reason.code == "Ended"
    assert ("ResumeTask", "n2", 1) in orders(outputs)
    assert ("ResumeTask", "n1", 1) not in orders(outputs), "it has ended"
    assert only(case.exit("a", "n2"), JobSucceeded)


def test_a_gang_of_which_a_task_has_ended_is_not_moved_live():
    """That task has no state to give: the others would stand still for it for ever."""
    case = MoveCase(2, n1=1, n2=1, n3=1, n4=1)
    case.exit("a", "n1")
    assert only(case.ask(), MoveAbandoned).reason.code == "Ending"
    assert only(case.ask(must_leave=True), JobPreempted)


def test_a_destination_that_does_not_start_in_time_is_given_up():
    """Whatever keeps it: a task there that does not leave, or code that cannot be fetched."""
    case = MoveCase()
    case.ask()
    begun_s = case.now_s
    assert case.replica.next_wakeup == begun_s + START_LIMIT_S
    outputs = case.give(TIMER, at=begun_s + START_LIMIT_S)
    abandoned = only(outputs, MoveAbandoned)
    assert abandoned.reason.code == "DestinationFailed"
    assert (
        abandoned.reason.message == f"its new tasks were to have begun within {START_LIMIT_S:.0f} s, and have not on n2"
    )
    assert orders(outputs) == [("StopTask", "n2", 2)], "the source has not noticed anything"
    assert case.state_of == {"n1": [["a"], []], "n2": [[], []]}
    assert case.replica.next_wakeup is None


def test_the_setup_of_a_destination_has_its_own_time():
    case = MoveCase()
    case.ask()
    case.give(JobSettingUp(job_id="a", attempt=2, node_id="n2", limit_s=900.0, reason=SAID))
    assert case.replica.next_wakeup == case.now_s + 900.0 + START_LIMIT_S
    case.start("a", "n2", attempt=2)
    assert case.replica.next_wakeup is None, "from here on its agent has patience with it"


def test_a_job_that_must_leave_is_restarted_when_its_destination_does_not_start_in_time():
    case = MoveCase()
    case.ask(must_leave=True)
    outputs = case.give(TIMER, at=case.now_s + START_LIMIT_S)
    assert orders(outputs) == [("StopTask", "n2", 2), ("StopTask", "n1", 1)]
    assert only(outputs, JobPreempted).attempt == 1


def cancels(case: MoveCase) -> list[Event]:
    return case.give(JobCancelRequested(job_id="a", requested_by="ada", grace_s=3600.0))


def stalls(case: MoveCase) -> list[Event]:
    tenant = case.replica.state.jobs["a"].spec.tenant
    case.give(TenantConfigured(tenant=tenant, gpu_limit=None, requested_by="op", on_stall="stop"))
    return case.give(
        JobStalled(job_id="a", attempt=1, quiet_s=70.0, limit_s=60.0, p99_s=0.1, minibatches_total=9, reason=SAID)
    )


@pytest.mark.parametrize("ends", [cancels, stalls])
def test_what_was_kept_for_a_move_is_given_away_as_soon_as_the_move_is_given_up(ends):
    case = MoveCase(n1=1, n2=1)
    case.ask()
    case.submit("waits")
    assert case.placed == ["a"]
    outputs = ends(case)
    assert only(outputs, MoveAbandoned)
    assert only(outputs, JobPlaced).job_id == "waits", "its own GPU comes with its end, which may take an hour"
