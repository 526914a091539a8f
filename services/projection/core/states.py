"""A job's state, derived from the facts in its row; handlers change facts, never the state."""

from __future__ import annotations

from libs.contracts.read_models import (
    FINAL_STATES,
    AttemptRow,
    GpuRow,
    JobRow,
    JobState,
    TaskStatus,
    TenantRow,
)
from services.projection.core.fold import At
from services.projection.core.rows import Rows


def live_job(rows: Rows, job_id: str) -> JobRow | None:
    """The job, unless it is unknown or has ended: nothing changes an ended job."""
    job = rows.get(JobRow, job_id)
    return job if job is not None and job.state not in FINAL_STATES else None


def state_of(job: JobRow) -> JobState:
    """The one state that the facts of a job that has not ended amount to."""
    if job.cancel_requested:
        return JobState.STOPPING
    if job.preempted:
        return JobState.MIGRATING if job.migration_id else JobState.STOPPING
    if not job.tasks:
        return JobState.QUEUED
    live = [status for status in job.tasks.values() if status is not TaskStatus.EXITED]
    if not live:
        return JobState.STOPPING
    if job.migration_id:
        return JobState.MIGRATING
    if TaskStatus.PLACED in live:
        return JobState.STARTING
    if all(status is TaskStatus.SUSPENDED for status in live):
        return JobState.SUSPENDED
    return JobState.RUNNING


def save(rows: Rows, job: JobRow, at: At) -> None:
    """Store a changed job that has not ended; its state follows from its facts.

    GPUs are free again when the last task of the gang has exited.
    """
    before = job.state
    job.state = state_of(job)
    if job.state is JobState.QUEUED and before is not JobState.QUEUED:
        job.queued_s = at.time_s
    if all(status is TaskStatus.EXITED for status in job.tasks.values()):
        release(rows, job, at)
    job.version = at.offset
    rows.put(job)


def finish(rows: Rows, job: JobRow, state: JobState, at: At) -> None:
    """The job has ended: it holds nothing from now on."""
    release(rows, job, at)
    withdraw_grant(rows, job, at)
    job.tasks, job.reserved_nodes = {}, []
    job.held = job.preempted = False
    job.migration_id = job.not_before_s = None
    job.state, job.finished_s, job.version = state, at.time_s, at.offset
    rows.put(job)


def gpu_ids(job: JobRow) -> list[str]:
    """Ids of the GPUs of the placement."""
    return [f"{task['node_id']}:{index}" for task in job.placement for index in task["gpu_indices"]]


def release(rows: Rows, job: JobRow, at: At) -> None:
    """Give the job's GPUs back, if it holds any."""
    if not job.holds_gpus:
        return
    for gpu in rows.fetch(GpuRow, [(gpu_id,) for gpu_id in gpu_ids(job)]):
        others = [holder for holder in gpu.holders if holder[0] != job.id]
        if others != gpu.holders:
            gpu.hold(others)
            gpu.version = at.offset
            rows.put(gpu)
    job.holds_gpus = False


def withdraw_placement(rows: Rows, job: JobRow, at: At) -> None:
    """The job waits: whatever it had is gone."""
    release(rows, job, at)
    job.tasks, job.placement, job.preempted = {}, [], False


def task_is(job: JobRow, node_id: str, status: TaskStatus) -> None:
    """One node's task has come this far. An exited task stays exited."""
    if job.tasks.get(node_id, TaskStatus.EXITED) is not TaskStatus.EXITED:
        job.tasks = job.tasks | {node_id: status}


def end_attempt(rows: Rows, job: JobRow, outcome: str, at: At) -> None:
    """Write down how the latest placed attempt ended; the first word stands."""
    attempt = rows.get(AttemptRow, job.id, job.attempt)
    if attempt is None or attempt.outcome:
        return
    attempt.ended_s, attempt.outcome = at.time_s, outcome
    attempt.exit_code, attempt.signal = job.exit_code, job.signal
    attempt.reason, attempt.message = job.reason, job.message
    attempt.version = at.offset
    rows.put(attempt)


def tenant_row(rows: Rows, name: str, at: At) -> TenantRow:
    """The tenant, made on first sight."""
    return rows.get(TenantRow, name) or TenantRow(name=name, version=at.offset)


def grant(rows: Rows, job: JobRow, gpus: int, at: At) -> None:
    """`gpus` of the job count against its tenant's limit from now on."""
    tenant = tenant_row(rows, job.tenant, at)
    tenant.granted_gpus += gpus - job.granted_gpus
    tenant.version = at.offset
    rows.put(tenant)
    job.granted_gpus = gpus


def withdraw_grant(rows: Rows, job: JobRow, at: At) -> None:
    """The grant has ended with its attempt."""
    if job.granted_gpus:
        grant(rows, job, 0, at)
