"""How attempts and jobs end."""

from __future__ import annotations

from libs.contracts.failure_analysis import (
    FailureClassified,
    InputQuarantined,
    InputReleased,
    JobAbandoned,
    RepeatNoticed,
    RetryScheduled,
)
from libs.contracts.placement import AttemptFailed, JobCancelled, JobSucceeded
from libs.contracts.read_models import AttemptRow, FailureNoticeRow, JobRow
from services.projection.core.fold import At, explain, note, on
from services.projection.core.rows import Rows
from services.projection.core.states import end_attempt, finish, live_job, take, withdraw_grant


@on(AttemptFailed)
def attempt_failed(rows: Rows, event: AttemptFailed, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is None or not take(rows, job, event, at):
        return
    job.exit_code, job.signal = event.exit_code, event.signal
    job.failed_attempts += 1
    explain(job, event.reason, at)
    withdraw_grant(rows, job, at)
    end_attempt(rows, job, event.attempt, event, at)
    attempt = rows.get(AttemptRow, event.job_id, event.attempt)
    if attempt is not None:
        attempt.failed_on = event.node_id
        rows.put(attempt)


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
        attempt.failure, attempt.cause, attempt.version = event.failure, event.cause, at.offset
        attempt.failed_on = event.node_id or attempt.failed_on
        rows.put(attempt)


@on(RepeatNoticed, InputQuarantined)
def noticed(rows: Rows, event: RepeatNoticed | InputQuarantined, at: At) -> None:
    of_input = isinstance(event, InputQuarantined)
    rows.put(
        FailureNoticeRow(
            kind="input" if of_input else "user",
            about=event.subject,
            message=event.reason.message,
            said_s=at.time_s,
            holds=of_input,
            version=at.offset,
        )
    )


@on(InputReleased)
def input_released(rows: Rows, event: InputReleased, at: At) -> None:
    notice = rows.get(FailureNoticeRow, "input", event.input)
    if notice is not None:
        notice.holds, notice.message, notice.version = False, event.reason.message, at.offset
        rows.put(notice)


@on(RetryScheduled)
def retry_scheduled(rows: Rows, event: RetryScheduled, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is None or not take(rows, job, event, at):
        return
    job.not_before_s = event.not_before_s
    job.retries_used = event.retries_used if event.retries_used is not None else job.retries_used + 1
    if not job.cancel_requested:
        explain(job, event.reason, at)


@on(JobAbandoned)
def abandoned(rows: Rows, event: JobAbandoned, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is not None and take(rows, job, event, at):
        job.exit_code, job.signal = event.exit_code, event.signal
        explain(job, event.reason, at)
        _ended(rows, job, event, at)


@on(JobSucceeded)
def succeeded(rows: Rows, event: JobSucceeded, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is not None and take(rows, job, event, at):
        job.exit_code, job.signal = 0, None
        note(job, "Succeeded", "every task exited with code 0", at)
        _ended(rows, job, event, at)


@on(JobCancelled)
def cancelled(rows: Rows, event: JobCancelled, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is not None and take(rows, job, event, at):
        explain(job, event.reason, at)
        _ended(rows, job, event, at)


def _ended(rows: Rows, job: JobRow, event: JobAbandoned | JobSucceeded | JobCancelled, at: At) -> None:
    end_attempt(rows, job, job.attempt, event, at)
    finish(rows, job, at)
