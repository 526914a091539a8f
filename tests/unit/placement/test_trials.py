"""Until admission's word on its trial, a job's attempts run on one GPU."""

from __future__ import annotations

from typing import Any

from libs.contracts.admission import JobAdmitted, TrialOrdered, TrialPassed, TrialSkipped
from libs.contracts.base import Event
from libs.contracts.failure_analysis import RetryScheduled
from libs.contracts.gateway import JobCancelRequested, JobCodeChanged, JobPauseRequested
from libs.contracts.introspection import NodeLost
from libs.contracts.jobs import ElasticRange, GpuRequest
from libs.contracts.placement import AttemptFailed, JobCancelled, JobPlaced, JobQueued, LaunchTask, StopTask
from libs.contracts.reasons import PendingReason
from libs.testing.core_case import arrival, only
from tests.unit.placement.placement_case import SAID, PlacementCase

CANCEL = JobCancelRequested(job_id="a", requested_by="u")


def with_trial(case: PlacementCase, job_id: str = "a", gpus: int | GpuRequest = 4, **spec: Any) -> list[Event]:
    """Arrival, order of a trial, admission, and the grant of the whole job; returns what the grant led to."""
    arrived = arrival(job_id, gpus, **spec)
    case.give(arrived)
    case.give(TrialOrdered(job_id=job_id, steps=3, gpus=1, limit_s=600.0, reason=SAID))
    case.give(JobAdmitted(job_id=job_id, reason=SAID))
    return case.grant(job_id, 1, arrived.spec.gpus.count)


def passed(attempt: int = 1) -> TrialPassed:
    return TrialPassed(job_id="a", attempt=attempt, steps=3, gpu_s=3.0, checkpoint=False, reason=SAID)


def skipped() -> TrialSkipped:
    return TrialSkipped(job_id="a", reason=SAID)


def test_a_trial_has_one_gpu_one_rank_and_an_end_although_more_gpus_are_free():
    case = PlacementCase(n1=4, n2=4)
    order = only(with_trial(case), LaunchTask)
    assert (order.gpu_indices, order.world_size, order.trial_steps, order.time_limit_s) == ([0], 1, 3, 600.0)


def test_the_shorter_limit_of_the_job_holds_in_its_trial_too():
    assert only(with_trial(PlacementCase(n1=4), time_limit_s=60.0), LaunchTask).time_limit_s == 60.0


def test_a_trial_that_ends_well_frees_its_gpu_and_waits_for_admissions_word():
    case = PlacementCase(n1=4)
    with_trial(case)
    queued = only(case.exit("a"), JobQueued)
    assert (queued.attempt, queued.tried, queued.reason.code) == (2, True, PendingReason.TRIAL_PENDING)
    assert only(case.submit("b", 4), JobPlaced).job_id == "b", "four GPUs are free"


def test_then_its_next_attempt_has_the_whole_gang_as_its_user_described_it():
    case = PlacementCase(n1=4)
    with_trial(case, gpus=GpuRequest(count=4, max_nodes=1), time_limit_s=5000.0)
    case.exit("a")
    placed, order = case.give(passed())
    assert isinstance(placed, JobPlaced) and placed.attempt == 2
    assert isinstance(order, LaunchTask)
    assert (order.world_size, order.trial_steps, order.time_limit_s) == (4, None, 5000.0)


def test_what_keeps_a_trial_waiting_is_told_as_the_trials():
    case = PlacementCase(n1=4)
    case.submit("b", 4)
    queued = only(with_trial(case), JobQueued)
    assert (queued.reason.code, queued.tried) == (PendingReason.TRIAL_PENDING, False)
    assert queued.waits_for == PendingReason.INSUFFICIENT_GPUS
    assert queued.reason.message.startswith("its trial waits: needs 1 GPU")


def test_a_skipped_trial_lets_the_gang_compete_at_once():
    case = PlacementCase(n1=4)
    case.submit("b", 4)
    with_trial(case)
    assert only(case.give(skipped()), JobQueued).reason.code == PendingReason.INSUFFICIENT_GPUS
    placed = only(case.exit("b"), JobPlaced)
    assert (placed.job_id, placed.attempt, len(placed.gang[0].gpu_indices)) == ("a", 1, 4)


def test_a_trial_that_has_begun_is_not_skipped_any_more():
    case = PlacementCase(n1=4)
    with_trial(case)
    assert case.give(skipped()) == []
    assert only(case.exit("a"), JobQueued).tried


def test_a_trial_that_loses_its_node_is_repeated():
    case = PlacementCase(n1=4, n2=4)
    with_trial(case)
    events = case.give(NodeLost(node_id="n1", incarnation=1, silent_s=30.0))
    assert not only(events, JobQueued).tried
    assert only(events, LaunchTask).trial_steps == 3


def test_a_failed_trial_is_told_as_such_and_its_retry_is_a_trial():
    case = PlacementCase(n1=4)
    with_trial(case)
    assert only(case.exit("a", code=1), AttemptFailed).trial
    case.give(RetryScheduled(job_id="a", attempt=2, not_before_s=0.0, reason=SAID))
    assert only(case.grant("a", 2, 4), LaunchTask).trial_steps == 3


def test_one_that_passes_in_spite_of_its_failure_has_its_gang_with_its_retry():
    case = PlacementCase(n1=4)
    with_trial(case)
    case.exit("a", code=1)
    assert case.give(passed()) == []
    case.give(RetryScheduled(job_id="a", attempt=2, not_before_s=0.0, reason=SAID))
    order = only(case.grant("a", 2, 4), LaunchTask)
    assert (order.world_size, order.trial_steps) == (4, None)


def test_a_job_that_is_cancelled_in_its_trial_ends_cancelled_although_the_trial_ends_well():
    case = PlacementCase(n1=4)
    with_trial(case)
    only(case.give(CANCEL), StopTask)
    assert [type(event) for event in case.exit("a")] == [JobCancelled]


def test_a_cancellation_while_admission_has_the_word_takes_effect_with_its_verdict():
    case = PlacementCase(n1=4)
    with_trial(case)
    case.exit("a")
    assert case.give(CANCEL) == []
    assert [type(event) for event in case.give(passed())] == [JobCancelled]
    assert case.replica.state.jobs == {}


def test_a_job_that_is_paused_after_its_trial_waits_on_hold():
    case = PlacementCase(n1=4)
    with_trial(case)
    case.exit("a")
    assert case.give(JobPauseRequested(job_id="a", requested_by="u")) == []
    assert only(case.give(passed()), JobQueued).reason.code == PendingReason.ON_HOLD


def test_new_code_is_that_of_the_gang_too():
    case = PlacementCase(n1=4)
    with_trial(case)
    case.give(JobCodeChanged(job_id="a", code_id="c-new", requested_by="u"))
    case.exit("a")
    assert only(case.give(passed()), LaunchTask).code_id == "c-new"


def test_the_trial_of_an_elastic_job_is_not_resized_and_knows_its_virtual_ranks():
    case = PlacementCase(n1=4)
    order = only(with_trial(case, gpus=2, elastic=ElasticRange(min_gpus=1, max_gpus=4)), LaunchTask)
    assert (order.world_size, order.virtual_ranks) == (1, 4)
    assert case.replica.state.jobs["a"].widths == [1]
