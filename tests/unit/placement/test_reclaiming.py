"""Victims leave their GPUs, and their claims go back to quota."""

from __future__ import annotations

from libs.contracts.agent import NodeLeaving
from libs.contracts.base import Event
from libs.contracts.gateway import JobCancelRequested
from libs.contracts.placement import AttemptFailed, JobCancelled, JobPlaced, JobPreempted, JobQueued, StopTask
from libs.contracts.quota import QuotaGranted, QuotaReclaimed, Victim
from libs.contracts.reasons import Reason
from libs.testing.core_case import only
from services.placement.core.jobs import Phase
from tests.unit.placement.placement_case import PlacementCase

SAID = Reason(code="Test", message="said by the test")


def reclaimed(*jobs: str) -> QuotaReclaimed:
    victims = [Victim(job_id=job_id, attempt=1, tenant="a", gpus=1, lost_gpu_s=0.0) for job_id in jobs]
    return QuotaReclaimed(
        job_id="owner",
        tenant="b",
        gpu_type="v100",
        short_gpus=1,
        in_use_ratio=1.0,
        victims=victims,
        lost_gpu_s=0.0,
        reason=SAID,
    )


def granted(job_id: str, attempt: int) -> QuotaGranted:
    return QuotaGranted(job_id=job_id, attempt=attempt, tenant="a", gpus=1, reason=SAID)


def stopped(case: PlacementCase, job_id: str, attempt: int = 1) -> list[Event]:
    return case.exit(job_id, "n1", code=None, signal=15, outcome="stopped", attempt=attempt)


def phase(case: PlacementCase, job_id: str) -> Phase:
    return case.replica.state.jobs[job_id].phase


def test_a_victim_that_runs_leaves_and_waits_for_quota():
    case = PlacementCase(n1=1)
    case.submit("lent")
    said = case.give(reclaimed("lent"))
    assert [type(event) for event in said] == [JobPreempted, StopTask]
    queued = only(stopped(case, "lent"), JobQueued)
    assert (queued.attempt, queued.returns_to_quota, phase(case, "lent")) == (2, True, Phase.WAITING)
    assert only(case.give(granted("lent", 2)), JobPlaced).attempt == 2


def test_its_gpus_are_free_for_another():
    case = PlacementCase(n1=1)
    case.submit("lent")
    case.give(reclaimed("lent"))
    stopped(case, "lent")
    assert only(case.submit("owner"), JobPlaced).job_id == "owner"


def test_a_victim_in_the_queue_leaves_it_at_once():
    case = PlacementCase(n1=1)
    case.submit("runs")
    case.submit("lent")
    queued = only(case.give(reclaimed("lent")), JobQueued)
    assert (queued.job_id, queued.attempt, queued.returns_to_quota) == ("lent", 2, True)
    case.exit("runs", "n1")
    assert phase(case, "lent") is Phase.WAITING, "it is not placed before quota has granted it again"


def test_a_victim_that_is_ending_ends_as_it_would_have():
    case = PlacementCase(n1=1, n2=1)
    case.submit("lent", 2)
    case.exit("lent", "n2", code=1)
    assert case.give(reclaimed("lent")) == []
    assert only(stopped(case, "lent"), AttemptFailed).attempt == 1
    assert not case.replica.state.jobs["lent"].returns_to_quota


def test_a_victim_that_is_preempted_already_returns_to_quota_too():
    case = PlacementCase(n1=1)
    case.submit("lent")
    case.give(NodeLeaving(node_id="n1", incarnation=1, note=""))
    case.give(reclaimed("lent"))
    assert only(stopped(case, "lent"), JobQueued).returns_to_quota


def test_a_victim_that_is_cancelled_while_it_waits_for_quota_is_gone():
    case = PlacementCase(n1=1)
    case.submit("lent")
    case.give(reclaimed("lent"))
    stopped(case, "lent")
    assert only(case.give(JobCancelRequested(job_id="lent", requested_by="u")), JobCancelled).job_id == "lent"


def test_a_victim_that_has_ended_is_nothing():
    case = PlacementCase(n1=1)
    case.submit("lent")
    case.exit("lent", "n1")
    assert case.give(reclaimed("lent")) == []
