"""An attempt at its place: placed, started, suspended, moved, measured, exited."""

from __future__ import annotations

import msgspec

from libs.contracts.agent import JobExited, JobResumed, JobStarted, JobSuspended
from libs.contracts.introspection import JobProfiled
from libs.contracts.migration import MigrationCompleted, MigrationFailed, MigrationStarted
from libs.contracts.placement import JobMoved, JobPlaced, JobPreempted, TimeSliceStarted
from libs.contracts.read_models import AttemptRow, GpuRow, JobRow, ProfileRow, TaskStatus
from libs.contracts.reasons import Reason
from services.projection.core.fold import At, explain, note, on
from services.projection.core.rows import Rows
from services.projection.core.states import (
    end_attempt,
    gpu_ids,
    live_job,
    release,
    save,
    task_is,
    withdraw_placement,
)


@on(JobPlaced)
def placed(rows: Rows, event: JobPlaced, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is None or event.attempt < job.attempt:
        return
    withdraw_placement(rows, job, at)
    job.attempt, job.reserved_nodes = event.attempt, []
    job.placement = [msgspec.to_builtins(task) for task in event.gang]
    job.tasks = {task.node_id: TaskStatus.PLACED for task in event.gang}
    job.placed_s, job.started_s = at.time_s, None
    job.exit_code = job.signal = job.rate_per_s = job.loss = None
    job.minibatches = 0
    explain(job, event.reason, at)
    _take_gpus(rows, job, at)
    rows.put(_attempt_row(job, event.reason, at))
    save(rows, job, at)


@on(JobMoved)
def moved(rows: Rows, event: JobMoved, at: At) -> None:
    """The earlier attempt is over; its tasks stood still, as the new ones do until they go on."""
    job = live_job(rows, event.job_id)
    if job is None or event.from_attempt != job.attempt:
        return
    end_attempt(rows, job, "moved", at)
    release(rows, job, at)
    job.attempt, job.placement = event.attempt, [msgspec.to_builtins(task) for task in event.gang]
    job.tasks = {task.node_id: TaskStatus.SUSPENDED for task in event.gang}
    explain(job, event.reason, at)
    _take_gpus(rows, job, at)
    rows.put(_attempt_row(job, event.reason, at, started_s=at.time_s))
    save(rows, job, at)


@on(TimeSliceStarted)
def sliced(rows: Rows, event: TimeSliceStarted, at: At) -> None:
    """Jobs take turns: a suspended job has no place until it goes on."""
    for job_id in [*event.suspended, *(seat.job_id for seat in event.resumed)]:
        job = live_job(rows, job_id)
        if job is not None:
            release(rows, job, at)
            job.placement = []
            explain(job, event.reason, at)
            save(rows, job, at)
    for seat in event.resumed:
        job = live_job(rows, seat.job_id)
        if job is not None:
            job.placement = [msgspec.to_builtins(task) for task in seat.gang]
            _take_gpus(rows, job, at)
            save(rows, job, at)


def _attempt_row(job: JobRow, reason: Reason, at: At, started_s: float | None = None) -> AttemptRow:
    return AttemptRow(
        job_id=job.id,
        attempt=job.attempt,
        placement=job.placement,
        placed_s=at.time_s,
        started_s=started_s,
        reason=reason.code,
        message=reason.message,
        version=at.offset,
    )


def _take_gpus(rows: Rows, job: JobRow, at: At) -> None:
    for gpu in rows.fetch(GpuRow, [(gpu_id,) for gpu_id in gpu_ids(job)]):
        gpu.hold([*gpu.holders, (job.id, job.attempt, job.tenant)])
        gpu.version = at.offset
        rows.put(gpu)
    job.holds_gpus = True


def _current(rows: Rows, job_id: str, attempt: int) -> JobRow | None:
    """The job, if it has not ended and this is its latest attempt."""
    job = live_job(rows, job_id)
    return job if job is not None and job.attempt == attempt else None


@on(JobStarted)
def started(rows: Rows, event: JobStarted, at: At) -> None:
    job = _current(rows, event.job_id, event.attempt)
    if job is None:
        return
    task_is(job, event.node_id, TaskStatus.RUNNING)
    if job.started_s is None and job.tasks and TaskStatus.PLACED not in job.tasks.values():
        job.started_s = at.time_s
        if job.first_started_s is None:
            job.first_started_s = at.time_s
        attempt = rows.get(AttemptRow, job.id, job.attempt)
        if attempt is not None:
            attempt.started_s, attempt.version = at.time_s, at.offset
            rows.put(attempt)
    save(rows, job, at)


@on(JobSuspended)
def suspended(rows: Rows, event: JobSuspended, at: At) -> None:
    job = _current(rows, event.job_id, event.attempt)
    if job is not None:
        task_is(job, event.node_id, TaskStatus.SUSPENDED)
        save(rows, job, at)


@on(JobResumed)
def resumed(rows: Rows, event: JobResumed, at: At) -> None:
    job = _current(rows, event.job_id, event.attempt)
    if job is not None:
        task_is(job, event.node_id, TaskStatus.RUNNING)
        if not job.cancel_requested:
            note(job, "Resumed", f"goes on at {event.node_id}", at)
        save(rows, job, at)


@on(JobExited)
def exited(rows: Rows, event: JobExited, at: At) -> None:
    job = _current(rows, event.job_id, event.attempt)
    if job is None:
        return
    task_is(job, event.node_id, TaskStatus.EXITED)
    if job.exit_code in (None, 0) and job.signal is None:
        job.exit_code, job.signal = event.exit_code, event.signal
    job.minibatches = max(job.minibatches, event.minibatches_total)
    save(rows, job, at)


@on(JobPreempted)
def preempted(rows: Rows, event: JobPreempted, at: At) -> None:
    job = _current(rows, event.job_id, event.attempt)
    if job is not None:
        job.preempted = True
        job.preemptions += 1
        if not job.cancel_requested:
            explain(job, event.reason, at)
        end_attempt(rows, job, "preempted", at)
        save(rows, job, at)


@on(MigrationStarted)
def migration_started(rows: Rows, event: MigrationStarted, at: At) -> None:
    job = _current(rows, event.job_id, event.attempt)
    if job is not None:
        job.migration_id = event.migration_id
        if not job.cancel_requested:
            explain(job, event.reason, at)
        save(rows, job, at)


@on(MigrationCompleted, MigrationFailed)
def migration_ended(rows: Rows, event: MigrationCompleted | MigrationFailed, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is not None and job.migration_id == event.migration_id:
        job.migration_id = None
        save(rows, job, at)


@on(JobProfiled)
def profiled(rows: Rows, event: JobProfiled, at: At) -> None:
    rows.put(
        ProfileRow(
            job_id=event.job_id,
            attempt=event.attempt,
            window_start_s=event.window_start_s,
            window_s=event.window_s,
            minibatches_total=event.minibatches_total,
            rate_per_s=event.rate_per_s,
            loss=event.loss,
            memory_peak_bytes=event.memory_peak_bytes,
            memory_min_bytes=event.memory_min_bytes,
            log_offset=at.offset,
        )
    )
    job = rows.get(JobRow, event.job_id)
    if job is None or job.attempt != event.attempt:
        return
    job.minibatches = max(job.minibatches, event.minibatches_total)
    job.rate_per_s = event.rate_per_s
    job.loss = event.loss if event.loss is not None else job.loss
    job.memory_peak_bytes = max(job.memory_peak_bytes or 0, event.memory_peak_bytes)
    job.version = at.offset
    rows.put(job)
