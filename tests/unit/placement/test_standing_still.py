"""Victims of a reclaim that are suspended: they keep what they have done, and wait for quota where they are."""

from __future__ import annotations

import pytest

from libs.contracts.agent import JobSuspended
from libs.contracts.base import Event
from libs.contracts.gateway import JobPauseRequested, JobResumeRequested, PolicyChanged
from libs.contracts.introspection import NodeLost
from libs.contracts.migration import MigrationStarted
from libs.contracts.placement import (
    AttemptFailed,
    JobPlaced,
    JobPreempted,
    JobQueued,
    MoveAbandoned,
    ResumeTask,
    StopTask,
    SuspendTask,
    TimeSliceStarted,
)
from libs.testing.core_case import only
from services.placement.core.jobs import Phase
from tests.unit.placement.placement_case import SAID, PlacementCase
from tests.unit.placement.rounds_case import RoundsCase
from tests.unit.placement.test_reclaiming import granted, reclaimed
from tests.unit.placement.test_slices import SlicesCase


def cell() -> SlicesCase:
    """One GPU, and a job on it that has borrowed it."""
    case = SlicesCase(n1=1)
    case.submit("lent")
    return case


def test_a_victim_is_suspended_and_waits_for_quota_where_it_is():
    case = cell()
    said = case.give(reclaimed("lent"))
    assert [type(event) for event in said] == [TimeSliceStarted, SuspendTask, JobQueued]
    assert said[0].suspended == ["lent"]
    assert (said[2].attempt, said[2].returns_to_quota, said[2].suspended) == (1, True, True)
    assert only(case.submit("owner"), JobPlaced).job_id == "owner"


def test_it_goes_on_when_quota_has_granted_it_again_and_gpus_are_free():
    case = cell()
    case.give(reclaimed("lent"))
    case.submit("owner")
    case.exit("owner")
    assert case.running == [], "its GPU is free, and it has no quota"
    said = case.give(granted("lent", 1))
    assert only(said, TimeSliceStarted).resumed[0].job_id == "lent"
    assert only(said, ResumeTask).attempt == 1
    assert case.placed == ["lent", "owner"], "the attempt is the same"


def test_it_takes_no_turns_before_quota_has_granted_it_again():
    case = cell()
    case.give(reclaimed("lent"))
    case.submit("owner")
    case.submit("other")
    for _ in range(3):
        case.wake()
        assert case.running != ["lent"]
    case.give(granted("lent", 1))
    turns = [case.wake() and case.running for _ in range(3)]
    assert ["lent"] in turns


def test_one_that_stands_still_between_two_turns_stays_where_it_is():
    case = cell()
    case.submit("other")
    case.wake()
    waits = "lent" if case.running == ["other"] else "other"
    said = case.give(reclaimed(waits))
    assert [type(event) for event in said] == [JobQueued]
    assert said[0].suspended


def test_one_that_has_not_begun_is_stopped():
    case = PlacementCase(n1=1)
    case.give(PolicyChanged(policy="gandiva", requested_by="op"))
    case.submit("lent")
    said = case.give(reclaimed("lent"))
    assert [type(event) for event in said] == [JobPreempted, StopTask]


@pytest.mark.parametrize(("restartable", "first"), [(False, TimeSliceStarted), (True, JobPreempted)])
def test_under_shares_a_victim_leaves_in_the_first_way_that_is_open_to_it(restartable: bool, first: type[Event]):
    case = RoundsCase(n1=1)
    case.submit("lent", restartable=restartable)
    case.start("lent")
    assert isinstance(case.give(reclaimed("lent"))[0], first)


def test_under_shares_it_has_no_lease_before_quota_has_granted_it_again():
    case = RoundsCase(n1=1)
    case.submit("lent", restartable=False)
    case.start("lent")
    case.give(reclaimed("lent"))
    case.give(JobSuspended(job_id="lent", attempt=1, node_id="n1", parked=True))
    case.submit("owner")
    for _ in range(2):
        case.next_round()
        assert case.replica.state.jobs["lent"].suspended
    case.exit("owner")
    case.heard(case.give(granted("lent", 1)))
    assert not case.replica.state.jobs["lent"].suspended


def test_a_policy_that_does_not_suspend_stops_its_victims_and_lets_go_on_what_stands_still():
    case = cell()
    case.give(reclaimed("lent"))
    case.submit("owner")
    case.give(PolicyChanged(policy="backfill", requested_by="op"))
    assert case.give(granted("lent", 1)) != [], "it is told why it waits"
    assert [type(event) for event in case.give(reclaimed("owner"))] == [JobPreempted, StopTask]
    said = case.exit("owner", code=None, signal=15, outcome="stopped")
    assert only(said, TimeSliceStarted).resumed[0].job_id == "lent"


def test_it_waits_for_quota_as_another_attempt_when_its_node_is_lost():
    case = cell()
    case.give(reclaimed("lent"))
    queued = only(case.give(NodeLost(node_id="n1", incarnation=1, silent_s=30.0)), JobQueued)
    assert (queued.attempt, queued.returns_to_quota, queued.suspended) == (2, True, False)
    assert case.replica.state.jobs["lent"].phase is Phase.WAITING
    assert case.give(granted("lent", 1)) == [], "quota did not know yet"
    case.give(granted("lent", 2))
    assert case.replica.state.jobs["lent"].phase is Phase.QUEUED


def test_one_that_fails_where_it_stands_has_failed():
    case = cell()
    case.give(reclaimed("lent"))
    assert only(case.exit("lent", code=1), AttemptFailed).attempt == 1
    assert case.give(granted("lent", 1)) == []


def test_a_grant_that_crosses_with_its_stop_is_kept():
    case = cell()
    case.give(reclaimed("lent"))
    must_leave = MigrationStarted(
        migration_id="m", job_id="lent", attempt=1, from_nodes=["n1"], to_nodes=[], must_leave=True, reason=SAID
    )
    assert only(case.give(must_leave), JobPreempted)
    case.give(granted("lent", 1))
    queued = only(case.exit("lent", code=None, signal=15, outcome="stopped"), JobQueued)
    assert (queued.attempt, queued.returns_to_quota) == (2, False)


def test_it_is_not_moved_without_quota():
    case = cell()
    case.give(reclaimed("lent"))
    move = MigrationStarted(
        migration_id="m", job_id="lent", attempt=1, from_nodes=["n1"], to_nodes=[], must_leave=False, reason=SAID
    )
    assert only(case.give(move), MoveAbandoned).reason.code == "AwaitsQuota"


def test_a_user_may_pause_it_meanwhile():
    case = cell()
    case.give(reclaimed("lent"))
    case.give(JobPauseRequested(job_id="lent", requested_by="u"))
    case.give(granted("lent", 1))
    assert case.replica.state.jobs["lent"].suspended
    resumed = case.give(JobResumeRequested(job_id="lent", requested_by="u"))
    assert only(resumed, TimeSliceStarted).resumed[0].job_id == "lent"
