"""How attempts and jobs end."""

from __future__ import annotations

from libs.contracts.failure_analysis import FailureClassified, JobAbandoned, RetryScheduled
from libs.contracts.placement import AttemptFailed, JobCancelled, JobSucceeded
from libs.contracts.read_models import AttemptRow, JobRow, JobState, TaskStatus
from services.projection.core.fold import At, explain, note, on
from services.projection.core.rows import Rows
from services.projection.core.states import (
    end_attempt,
    finish,
    live_job,
    save,
    withdraw_grant,
    withdraw_placement,
)


@on(AttemptFailed)
def attempt_failed(rows: Rows, event: AttemptFailed, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is None or event.attempt != job.attempt:
        return
    job.exit_code, job.signal = event.exit_code, event.signal
    job.failed_attempts += 1
    job.preempted = False
    job.tasks = dict.fromkeys(job.tasks, TaskStatus.EXITED)
    explain(job, event.reason, at)
    withdraw_grant(rows, job, at)
    end_attempt(rows, job, "failed", at)
    save(rows, job, at)


@on(FailureClassified)
def classified(rows: Rows, event: FailureClassified, at: At) -> None:
    job = rows.get(JobRow, event.job_id)
    if job is None:
        return
    job.failure, job.failure_category = event.failure, event.category
    job.deciding_line = event.deciding_line
    job.version = at.offset
    rows.put(job)
    attempt = rows.get(AttemptRow, event.job_id, event.attempt)
    if attempt is not None:
        attempt.failure, attempt.version = event.failure, at.offset
        rows.put(attempt)


@on(RetryScheduled)
def retry_scheduled(rows: Rows, event: RetryScheduled, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is None:
        return
    withdraw_placement(rows, job, at)
    job.attempt, job.not_before_s = event.attempt, event.not_before_s
    if not job.cancel_requested:
        explain(job, event.reason, at)
    save(rows, job, at)


@on(JobAbandoned)
def abandoned(rows: Rows, event: JobAbandoned, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is not None:
        job.exit_code, job.signal = event.exit_code, event.signal
        explain(job, event.reason, at)
        end_attempt(rows, job, "failed", at)
        finish(rows, job, JobState.FAILED, at)


@on(JobSucceeded)
def succeeded(rows: Rows, event: JobSucceeded, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is not None:
        job.exit_code, job.signal = 0, None
        note(job, "Succeeded", "every task exited with code 0", at)
        end_attempt(rows, job, "succeeded", at)
        finish(rows, job, JobState.SUCCEEDED, at)


@on(JobCancelled)
def cancelled(rows: Rows, event: JobCancelled, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is not None:
        explain(job, event.reason, at)
        end_attempt(rows, job, "cancelled", at)
        finish(rows, job, JobState.CANCELLED, at)
