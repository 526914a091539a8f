"""From arrival to the queue: jobs that are admitted and granted."""

from __future__ import annotations

from libs.contracts.admission import JobAdmitted, JobRejected
from libs.contracts.failure_analysis import JobAbandoned, RetryScheduled
from libs.contracts.gateway import JobArrived
from libs.contracts.placement import JobCancelled, JobQueued
from libs.contracts.quota import OpportunityGranted, QuotaGranted
from libs.contracts.reasons import PendingReason, Reason
from libs.kernel.machine import Turn
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job, Phase, profile_before
from services.placement.core.lifecycle import avoiding
from services.placement.core.lifecycle.placing import forget
from services.placement.core.lifecycle.pools import settle
from services.placement.core.lifecycle.queue import enqueue
from services.placement.core.lifecycle.table import Look, machine, reacts


@machine.evolves(JobArrived)
def job_arrived(cell: Cell, event: JobArrived, now_s: float) -> None:
    if event.job_id not in cell.jobs:
        job = Job(
            job_id=event.job_id,
            spec=event.spec,
            seq=cell.next_seq,
            priority=event.spec.priority,
            arrived_s=now_s,
            profile=profile_before(event.spec),
        )
        cell.jobs[event.job_id] = job
        cell.next_seq += 1


@machine.evolves(JobAdmitted)
def job_admitted(cell: Cell, event: JobAdmitted, now_s: float) -> None:
    job = cell.jobs.get(event.job_id)
    if job is not None and job.phase is Phase.ARRIVED:
        job.phase = Phase.WAITING


@machine.evolves(RetryScheduled)
def retry_scheduled(cell: Cell, event: RetryScheduled, now_s: float) -> None:
    job = cell.jobs.get(event.job_id)
    if job is not None and job.phase is Phase.FAILED:
        job.phase = Phase.WAITING
        avoiding.change(cell, job, event)


@machine.decides(JobAdmitted, RetryScheduled)
def cancel_if_asked(cell: Cell, event: JobAdmitted | RetryScheduled, turn: Turn[Cell]) -> None:
    """A cancellation that came while another service had the word takes effect now."""
    job = cell.jobs.get(event.job_id)
    if job is not None and job.phase is Phase.WAITING and job.cancellation is not None:
        turn.emit(cancelled(job))


@machine.evolves(QuotaGranted, OpportunityGranted)
def granted(cell: Cell, event: QuotaGranted | OpportunityGranted, now_s: float) -> None:
    job = cell.jobs.get(event.job_id)
    if job is not None and job.phase is Phase.ACTIVE and event.attempt == job.attempt:
        goes_on_with_quota(cell, job, now_s)
        return
    if job is None or job.phase is not Phase.WAITING or event.attempt <= job.attempt:
        return
    job.phase, job.attempt, job.queued_since_s = Phase.QUEUED, event.attempt, now_s
    job.opportunistic = isinstance(event, OpportunityGranted)
    settle(cell, job)
    avoiding.lift_if_needed(cell, job)
    if not job.held:
        enqueue(cell, job)


def goes_on_with_quota(cell: Cell, job: Job, now_s: float) -> None:
    """A victim that was suspended has quota again; one that is being stopped meanwhile is queued with it."""
    job.returns_to_quota = False
    job.wait_code, job.queued_since_s = "", now_s
    cell.affects(job)


@reacts(QuotaGranted, OpportunityGranted)
def place_or_queue(cell: Cell, event: QuotaGranted | OpportunityGranted, turn: Turn[Cell]) -> Look | None:
    job = cell.jobs.get(event.job_id)
    if job is None or not (job.phase is Phase.QUEUED or job.suspended) or event.attempt != job.attempt:
        return None
    if job.held:
        turn.emit(JobQueued(job_id=job.job_id, attempt=job.attempt, reason=on_hold()))
        return None
    return Look()


@machine.evolves(JobRejected, JobAbandoned, JobCancelled)
def job_gone(cell: Cell, event: JobRejected | JobAbandoned | JobCancelled, now_s: float) -> None:
    job = cell.jobs.get(event.job_id)
    if job is not None:
        forget(cell, job, now_s)


def cancelled(job: Job) -> JobCancelled:
    """The end of a cancelled job."""
    by = job.cancellation.requested_by if job.cancellation is not None else ""
    reason = Reason(code="CancelRequested", message=f"cancelled by {by}")
    return JobCancelled(job_id=job.job_id, attempt=job.attempt, reason=reason)


def on_hold() -> Reason:
    """For a job that its user has paused before it ran."""
    return Reason(code=PendingReason.ON_HOLD, message="paused; goes on after `sanjaya resume`")
