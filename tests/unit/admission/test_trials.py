"""A wide job runs its first mini-batches on one GPU before its gang starts."""

from __future__ import annotations

from typing import Any

import pytest

from libs.contracts.admission import JobAdmitted, TrialFailed, TrialOrdered, TrialPassed, TrialSkipped
from libs.contracts.agent import JobExited
from libs.contracts.base import Event
from libs.contracts.cluster import TaskPlacement
from libs.contracts.failure_analysis import FailureClassified, JobAbandoned
from libs.contracts.gateway import SettingChanged
from libs.contracts.placement import AttemptFailed, JobCancelled, JobPlaced, JobQueued
from libs.contracts.quota import QuotaGranted
from libs.contracts.reasons import Reason
from libs.testing.core_case import CoreCase, arrival, node, only
from services.admission.service import SERVICE

WHY = Reason(code="Test", message="as the test says")


def case_with_trials(**settings: float) -> CoreCase:
    case = CoreCase(SERVICE)
    case.give(node("n1", 8))
    for name, value in {"trial_above_gpus": 4, **settings}.items():
        case.give(SettingChanged(service="admission", name=name, value=value, requested_by="op"))
    return case


def placed(attempt: int, gpus: int) -> JobPlaced:
    gang = [TaskPlacement(node_id="n1", gpu_indices=list(range(gpus)), first_rank=0)]
    return JobPlaced(job_id="a", attempt=attempt, gang=gang, reason=WHY)


def granted() -> QuotaGranted:
    return QuotaGranted(job_id="a", attempt=1, tenant="default", gpus=8, reason=WHY)


def exited(attempt: int, steps: int) -> JobExited:
    return JobExited(
        job_id="a",
        attempt=attempt,
        node_id="n1",
        exit_code=0,
        signal=None,
        outcome="exited",
        minibatches_total=steps,
    )


def tried(attempt: int) -> JobQueued:
    return JobQueued(job_id="a", attempt=attempt, tried=True, reason=WHY)


def failed(attempt: int = 1) -> AttemptFailed:
    return AttemptFailed(
        job_id="a", attempt=attempt, node_id="n1", exit_code=1, signal=None, outcome="exited", trial=True, reason=WHY
    )


def classified(failure: str, attempt: int = 1) -> FailureClassified:
    return FailureClassified(
        job_id="a", attempt=attempt, failure=failure, category="user", retry_can_help=False, deciding_line="the line"
    )


def abandoned() -> JobAbandoned:
    return JobAbandoned(job_id="a", attempt=1, exit_code=1, signal=None, reason=WHY)


def in_trial(**settings: float) -> CoreCase:
    """The job's trial has been placed at 10 s."""
    case = case_with_trials(**settings)
    case.give(arrival("a", 8), at=1.0)
    case.give(granted(), at=2.0)
    case.give(placed(1, 1), at=10.0)
    return case


def test_a_job_of_more_than_so_many_gpus_is_ordered_a_trial_before_it_is_admitted():
    ordered, admitted = case_with_trials().give(arrival("a", 5))
    assert isinstance(ordered, TrialOrdered) and isinstance(admitted, JobAdmitted)
    assert (ordered.steps, ordered.gpus) == (3, 1)
    assert ordered.reason.numbers == {"gpus": 5, "above_gpus": 4.0, "steps": 3}


def test_one_of_so_many_gpus_is_not():
    assert [type(e) for e in case_with_trials().give(arrival("a", 4))] == [JobAdmitted]


def test_by_default_no_job_is():
    case = CoreCase(SERVICE)
    case.give(node("n1", 8))
    assert [type(e) for e in case.give(arrival("a", 8))] == [JobAdmitted]


@pytest.mark.parametrize(("gpus", "trial", "steps"), [(8, 0, None), (2, 1, 1), (8, 20, 20), (1, 5, None)])
def test_a_job_says_itself_how_long_its_trial_is_and_one_gpu_needs_none(gpus: int, trial: int, steps: int | None):
    outputs = case_with_trials().give(arrival("a", gpus, trial=trial))
    ordered = [event.steps for event in outputs if isinstance(event, TrialOrdered)]
    assert ordered == ([] if steps is None else [steps])


def test_a_command_that_starts_the_ranks_itself_runs_without_and_says_so():
    skipped, admitted = case_with_trials().give(arrival("a", 8, launcher="command"))
    assert isinstance(skipped, TrialSkipped) and isinstance(admitted, JobAdmitted)
    assert skipped.reason.code == "OwnLauncher"


def test_a_trial_that_ends_well_passes_with_what_it_did_and_cost():
    case = in_trial()
    case.give(exited(1, 3), at=22.0)
    passed = only(case.give(tried(2), at=22.0), TrialPassed)
    assert (passed.attempt, passed.steps, passed.gpu_s, passed.checkpoint) == (1, 3, 12.0, False)
    assert passed.reason.code == "TrialPassed"


def test_a_preempted_trial_is_repeated_and_all_of_its_gpu_seconds_count():
    case = in_trial()
    assert case.give(JobQueued(job_id="a", attempt=2, reason=WHY), at=15.0) == []
    case.give(placed(2, 1), at=20.0)
    case.give(exited(2, 3), at=27.0)
    assert only(case.give(tried(3), at=27.0), TrialPassed).gpu_s == 12.0


def test_a_trial_that_fails_for_good_says_so_behind_the_end_of_its_job():
    case = in_trial()
    case.give(exited(1, 1), at=14.0)
    assert case.give(failed(), at=14.0) == case.give(classified("semantic_error"), at=14.0) == []
    said = only(case.give(abandoned(), at=14.0), TrialFailed)
    assert (said.failure, said.steps, said.gpu_s) == ("semantic_error", 1, 4.0)


@pytest.mark.parametrize("failure", ["gpu_out_of_memory", "time_limit_exceeded"])
def test_what_one_gpu_cannot_tell_passes_with_a_note(failure: str):
    case = in_trial()
    case.give(failed(), at=14.0)
    passed = only(case.give(classified(failure), at=14.0), TrialPassed)
    assert passed.reason.code == "TrialExcused" and failure in passed.reason.message


def test_a_trial_that_waits_too_long_for_its_gpu_is_skipped():
    case = case_with_trials(trial_patience_s=60)
    case.give(arrival("a", 8), at=1.0)
    assert case.replica.next_wakeup is None, "a wait for quota is none for a GPU"
    case.give(granted(), at=50.0)
    assert case.replica.next_wakeup == 110.0
    skipped = only(case.wake(), TrialSkipped)
    assert skipped.reason.numbers == {"trial_patience_s": 60.0}
    assert case.replica.next_wakeup is None
    assert case.give(placed(1, 8), at=111.0) == []
    assert case.give(abandoned(), at=120.0) == [], "its gang has started: no trial has failed"


def test_a_trial_that_begins_while_it_is_being_skipped_counts():
    case = case_with_trials(trial_patience_s=60)
    case.give(arrival("a", 8), at=1.0)
    case.give(granted(), at=50.0)
    only(case.wake(), TrialSkipped)
    case.give(placed(1, 1), at=111.0)
    only(case.give(tried(2), at=114.0), TrialPassed)


def test_a_trial_that_is_placed_in_time_is_not_skipped():
    assert in_trial(trial_patience_s=60).replica.next_wakeup is None


def test_nothing_is_left_of_the_trial_of_a_cancelled_job():
    case = in_trial()
    case.give(JobCancelled(job_id="a", attempt=1, reason=WHY))
    assert case.replica.state.trials == {}


def test_what_is_said_of_jobs_without_a_trial_changes_nothing():
    case = case_with_trials()
    case.give(arrival("a", 2))
    ignored: list[Event] = [granted(), placed(1, 2), exited(1, 5), failed(), classified("gpu_out_of_memory")]
    said: list[Any] = [case.give(event) for event in ignored]
    assert said == [[]] * len(ignored)
