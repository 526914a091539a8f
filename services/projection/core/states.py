"""A job's row and its life: the fold of `libs.lifecycle` decides, the row keeps what comes of it."""

from __future__ import annotations

from collections import Counter

import msgspec

from libs import lifecycle
from libs.contracts.base import Event
from libs.contracts.cluster import TaskPlacement
from libs.contracts.placement import JobPlaced, Role
from libs.contracts.read_models import (
    FINAL_STATES,
    STATUS_BY_STATE,
    AttemptRow,
    GpuRow,
    HoldingRow,
    JobRow,
    JobState,
    TenantRow,
)
from services.projection.core.fold import At
from services.projection.core.rows import Rows


def live_job(rows: Rows, job_id: str) -> JobRow | None:
    """The job, unless it is unknown or has ended: nothing changes an ended job."""
    job = rows.get(JobRow, job_id)
    return job if job is not None and job.state not in FINAL_STATES else None


def life_of(job: JobRow) -> lifecycle.Life:
    """The life that the row keeps. Its books begin here: rows keep no sums."""
    return lifecycle.Life(
        job_id=job.id,
        tenant=job.tenant,
        submitted_s=job.submitted_s,
        state=job.state,
        attempt=job.attempt,
        gang=msgspec.convert(job.placement, list[TaskPlacement]),
        tasks=job.tasks,
        holds_gpus=job.holds_gpus,
        is_cancelled=job.cancel_requested,
        is_paused=job.held,
        is_preempted=job.preempted,
        migration_id=job.migration_id,
        started_s=job.started_s,
        preemptions=job.preemptions,
        finished_s=job.finished_s,
    )


def take(rows: Rows, job: JobRow, event: Event, at: At) -> bool:
    """Fold an event into the life of a job that has not ended, and keep what comes of it: in its row and its GPUs'.

    Returns:
        Whether the event concerns the job as it stands; if not, nothing has changed.
    """
    life = life_of(job)
    gang, number = life.gang, life.attempt
    if not lifecycle.fold(life, event, lifecycle.At(time_s=at.time_s)):
        return False
    if life.state is JobState.QUEUED and job.state is not JobState.QUEUED:
        job.queued_s = at.time_s
    job.state, job.attempt, job.tasks = life.state, life.attempt, life.tasks
    job.status = STATUS_BY_STATE.get(life.state, "")
    job.cancel_requested, job.held, job.preempted = life.is_cancelled, life.is_paused, life.is_preempted
    job.migration_id, job.started_s = life.migration_id, life.started_s
    job.preemptions, job.finished_s = life.preemptions, life.finished_s
    if isinstance(event, JobPlaced):
        job.role, job.offered = event.role, False
    if life.gang is not gang:
        # The old GPUs first: the new gang may have some of them, and holders stand in the order in which they came.
        _release(rows, job, number, at)
        job.placement = [msgspec.to_builtins(task) for task in life.gang]
        job.seats = job.placement or job.seats
        _hold(rows, job, at)
    if not life.holds_gpus:
        _release(rows, job, number, at)
        if life.state is not JobState.SUSPENDED:
            job.seats = []
    keep(rows, job, at)
    return True


def keep(rows: Rows, job: JobRow, at: At) -> None:
    """Store a row that the event has changed."""
    job.version = at.offset
    rows.put(job)


def _gpus(rows: Rows, job: JobRow) -> list[GpuRow]:
    """Rows of the GPUs of the placement."""
    ids = [(f"{task['node_id']}:{index}",) for task in job.placement for index in task["gpu_indices"]]
    return rows.fetch(GpuRow, ids)


def _hold(rows: Rows, job: JobRow, at: At) -> None:
    """The job holds the GPUs of its placement, if it has one."""
    gpus = _gpus(rows, job)
    for gpu in gpus:
        gpu.admit((job.id, job.attempt, job.tenant), as_guest=job.role == Role.GUEST)
        gpu.version = at.offset
        rows.put(gpu)
    job.holds_gpus = bool(job.placement)
    job.holding_offset, job.holding_gpus = at.offset, dict(Counter(gpu.gpu_type for gpu in gpus))
    for gpu_type, number in job.holding_gpus.items():
        rows.put(HoldingRow(job_id=job.id, begin_offset=at.offset, gpu_type=gpu_type, gpus=number, begin_s=at.time_s))


def _release(rows: Rows, job: JobRow, number: int, at: At) -> None:
    """Give the GPUs of the job's attempt `number` back, if it holds any."""
    if not job.holds_gpus:
        return
    for gpu in _gpus(rows, job):
        if gpu.dismiss(job.id):
            gpu.version = at.offset
            rows.put(gpu)
    job.holds_gpus = False
    attempt = rows.get(AttemptRow, job.id, number)
    for holding in rows.fetch(HoldingRow, [(job.id, job.holding_offset, of) for of in job.holding_gpus]):
        holding.end_s = max(at.time_s, holding.begin_s)
        gpu_s = holding.gpus * (holding.end_s - holding.begin_s)
        job.gpu_s += gpu_s
        rows.put(holding)
        if attempt is not None:
            attempt.gpu_s += gpu_s
            attempt.version = at.offset
            rows.put(attempt)
    job.holding_offset, job.holding_gpus = None, {}


def change_role(rows: Rows, job: JobRow, role: Role, at: At) -> None:
    """The job is something else on the GPUs that it has."""
    for gpu in _gpus(rows, job) if job.holds_gpus else ():
        gpu.dismiss(job.id)
        gpu.admit((job.id, job.attempt, job.tenant), as_guest=role is Role.GUEST)
        gpu.version = at.offset
        rows.put(gpu)
    job.role = role


def end_attempt(rows: Rows, job: JobRow, number: int, event: Event, at: At) -> None:
    """Write down how an attempt ended, if the event says so; the first word stands.

    Args:
        rows: with the attempt's.
        job: as the event has left it; the attempt takes over its exit code and its reason.
        number: the latest of the job before the event.
        event: which concerns the job.
        at: its place.
    """
    outcome = lifecycle.outcome_of(number, event)
    attempt = rows.get(AttemptRow, job.id, number) if outcome else None
    if attempt is None or attempt.outcome:
        return
    attempt.ended_s, attempt.outcome = at.time_s, outcome
    attempt.exit_code, attempt.signal = job.exit_code, job.signal
    attempt.reason, attempt.message = job.reason, job.message
    attempt.version = at.offset
    rows.put(attempt)


def finish(rows: Rows, job: JobRow, at: At) -> None:
    """Nothing is kept for a job that has ended, and it waits for nothing."""
    withdraw_grant(rows, job, at)
    job.reserved_nodes, job.not_before_s = [], None


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
