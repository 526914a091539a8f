"""An attempt at its place: placed, started, suspended, moved, measured, exited."""

from __future__ import annotations

from libs import lifecycle
from libs.contracts.agent import JobExited, JobRanksApart, JobResumed, JobSettingUp, JobStarted, JobSuspended
from libs.contracts.introspection import (
    GpuIdle,
    JobConverged,
    JobProfiled,
    JobRecovered,
    JobStalled,
    JobStuck,
    LossDiverged,
)
from libs.contracts.migration import MigrationCompleted, MigrationFailed, MigrationStarted
from libs.contracts.placement import (
    JobMoved,
    JobPlaced,
    JobPreempted,
    Role,
    TimeSliceStarted,
    UpgradeOffered,
    UpgradeWithdrawn,
)
from libs.contracts.quota import JobUpgraded
from libs.contracts.read_models import AttemptRow, JobRow, ProfileRow
from libs.contracts.reasons import Reason
from libs.lifecycle.awaited import STUCK
from libs.node.alarms import IDLE, STALLED
from services.projection.core.fold import At, explain, note, on
from services.projection.core.rows import Rows
from services.projection.core.states import change_role, end_attempt, grant, keep, live_job, take, withdraw_grant

_NOTICES = {STALLED: JobStalled.__name__, IDLE: GpuIdle.__name__, STUCK: JobStuck.__name__}
"""{alarm that may be over: the code of its reason}."""


@on(JobPlaced)
def placed(rows: Rows, event: JobPlaced, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is None or not take(rows, job, event, at):
        return
    job.reserved_nodes, job.placed_s = [], at.time_s
    job.exit_code = job.signal = job.rate_per_s = job.loss = job.measured_until_s = None
    job.minibatches, job.loss_nonfinite, job.notices = 0, "", {}
    explain(job, event.reason, at)
    rows.put(_attempt_row(job, event.reason, at))


@on(UpgradeOffered)
def offered(rows: Rows, event: UpgradeOffered, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is not None and job.attempt == event.attempt:
        job.offered = True
        keep(rows, job, at)


@on(JobUpgraded)
def upgraded(rows: Rows, event: JobUpgraded, at: At) -> None:
    """Nothing, if the offer has been withdrawn before."""
    job = live_job(rows, event.job_id)
    if job is not None and job.attempt == event.attempt and job.offered:
        change_role(rows, job, Role.OWNER, at)
        grant(rows, job, event.gpus, at)
        keep(rows, job, at)


@on(UpgradeWithdrawn)
def withdrawn(rows: Rows, event: UpgradeWithdrawn, at: At) -> None:
    """Also an upgrade of which placement had not heard."""
    job = live_job(rows, event.job_id)
    if job is not None and job.offered:
        if job.role == Role.OWNER:
            change_role(rows, job, Role.GUEST, at)
            withdraw_grant(rows, job, at)
        job.offered = False
        keep(rows, job, at)


@on(JobMoved)
def moved(rows: Rows, event: JobMoved, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is None or not take(rows, job, event, at):
        return
    # With the reason that the job had until now: the event's own is that of the attempt which goes on.
    end_attempt(rows, job, event.from_attempt, event, at)
    explain(job, event.reason, at)
    rows.put(_attempt_row(job, event.reason, at, started_s=at.time_s))


@on(TimeSliceStarted)
def sliced(rows: Rows, event: TimeSliceStarted, at: At) -> None:
    for job_id in lifecycle.jobs_of_slice(event):
        job = live_job(rows, job_id)
        if job is not None and take(rows, job, event, at):
            explain(job, event.reason, at)


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


@on(JobStarted)
def started(rows: Rows, event: JobStarted, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is None:
        return
    before_s = job.started_s
    if not take(rows, job, event, at) or job.started_s == before_s:
        return
    if job.first_started_s is None:
        job.first_started_s = job.started_s
    attempt = rows.get(AttemptRow, job.id, job.attempt)
    if attempt is not None:
        attempt.started_s, attempt.version = job.started_s, at.offset
        rows.put(attempt)


@on(JobRanksApart, JobSettingUp)
def told(rows: Rows, event: JobRanksApart | JobSettingUp, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is not None and job.attempt == event.attempt and not job.cancel_requested:
        explain(job, event.reason, at)
        keep(rows, job, at)


@on(JobStalled, JobStuck, GpuIdle, LossDiverged, JobRecovered)
def alarm(rows: Rows, event: JobStalled | JobStuck | GpuIdle | LossDiverged | JobRecovered, at: At) -> None:
    job = live_job(rows, event.job_id)
    # A job that stands may be between two attempts.
    stands = isinstance(event, JobStuck) or (isinstance(event, JobRecovered) and event.alarm == STUCK)
    if job is None or (job.attempt != event.attempt and not stands):
        return
    if isinstance(event, JobRecovered):
        job.notices.pop(_NOTICES[event.alarm], None)
    else:
        job.notices[event.reason.code] = event.reason.message
    # What has brought on a job that stood has said why that is where it is.
    says_why = job.attempt == event.attempt and not (stands and isinstance(event, JobRecovered))
    if says_why and not job.cancel_requested:
        explain(job, event.reason, at)
    keep(rows, job, at)


@on(JobConverged)
def converged(rows: Rows, event: JobConverged, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is None:
        return
    job.best_loss, job.best_epoch = event.best, event.best_epoch
    job.converged_epoch, job.gpu_s_since_converged = event.converged_epoch, event.gpu_s_since
    keep(rows, job, at)


@on(JobSuspended)
def suspended(rows: Rows, event: JobSuspended, at: At) -> None:
    job = _take_task(rows, event, at)
    kept = lifecycle.why_gpus_are_kept(event)
    if job is not None and job.held and not job.cancel_requested and kept is not None:
        explain(job, kept, at)


def _take_task(rows: Rows, event: JobStarted | JobSuspended | JobResumed | JobExited, at: At) -> JobRow | None:
    """The job, if the event is of a task of its latest attempt."""
    job = live_job(rows, event.job_id)
    return job if job is not None and take(rows, job, event, at) else None


@on(JobResumed)
def resumed(rows: Rows, event: JobResumed, at: At) -> None:
    job = _take_task(rows, event, at)
    if job is not None and not job.cancel_requested:
        note(job, "Resumed", f"goes on at {event.node_id}", at)


@on(JobExited)
def exited(rows: Rows, event: JobExited, at: At) -> None:
    job = _take_task(rows, event, at)
    if job is None:
        return
    if job.exit_code in (None, 0) and job.signal is None:
        job.exit_code, job.signal = event.exit_code, event.signal
    job.minibatches = max(job.minibatches, event.minibatches_total)


@on(JobPreempted)
def preempted(rows: Rows, event: JobPreempted, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is not None and take(rows, job, event, at):
        if not job.cancel_requested:
            explain(job, event.reason, at)
        end_attempt(rows, job, event.attempt, event, at)


@on(MigrationStarted)
def migration_started(rows: Rows, event: MigrationStarted, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is not None and take(rows, job, event, at) and not job.cancel_requested:
        explain(job, event.reason, at)


@on(MigrationCompleted, MigrationFailed)
def migration_ended(rows: Rows, event: MigrationCompleted | MigrationFailed, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is not None:
        take(rows, job, event, at)


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
    if event.loss is not None or event.loss_nonfinite:
        job.loss, job.loss_nonfinite = event.loss, event.loss_nonfinite
    job.measured_until_s = max(job.measured_until_s or 0.0, event.window_start_s + event.window_s)
    job.memory_peak_bytes = max(job.memory_peak_bytes or 0, event.memory_peak_bytes)
    job.version = at.offset
    rows.put(job)
