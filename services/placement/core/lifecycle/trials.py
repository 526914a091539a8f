"""A job's trial: until admission's word on it, every attempt of the job runs its first mini-batches on few GPUs.

The trial is an attempt like any other, of the job as it would be if it had asked for so many GPUs: `Job.spec` says
that, and `Job.trial` what its user described. So no mechanism knows of trials.
"""

from __future__ import annotations

from msgspec.structs import replace

from libs.contracts.admission import TrialOrdered, TrialPassed, TrialSkipped
from libs.contracts.jobs import JobSpec
from libs.contracts.placement import JobQueued
from libs.contracts.reasons import PendingReason, Reason
from libs.kernel.machine import Turn
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job, Phase, Profile, Trial
from services.placement.core.lifecycle.arrivals import cancelled, on_hold
from services.placement.core.lifecycle.placing import withdraw
from services.placement.core.lifecycle.queue import dequeue, enqueue
from services.placement.core.lifecycle.table import Look, machine, reacts


def tried(job: Job) -> JobQueued:
    """The decision that the job's trial is over, and has ended well: admission says what follows."""
    message = f"its trial has ended after attempt {job.attempt}; admission looks at it next"
    reason = Reason(code=PendingReason.TRIAL_PENDING, message=message)
    return JobQueued(job_id=job.job_id, attempt=job.next_attempt, tried=True, reason=reason)


@machine.evolves(TrialOrdered)
def trial_ordered(cell: Cell, event: TrialOrdered, now_s: float) -> None:
    job = cell.jobs.get(event.job_id)
    if job is not None and job.phase is Phase.ARRIVED:
        job.trial = Trial(steps=event.steps, asked=job.spec)
        job.spec = _as_trial(job.spec, event)


@machine.evolves(TrialPassed)
def trial_passed(cell: Cell, event: TrialPassed, now_s: float) -> bool:
    """Whether the job may have its whole gang from now on; one that has failed waits for failure analysis."""
    job = cell.jobs.get(event.job_id)
    if job is None or job.trial is None or job.phase not in (Phase.TRIED, Phase.FAILED):
        return False
    _run_whole(job, job.trial)
    if job.phase is Phase.FAILED:
        return False
    job.phase, job.queued_since_s, job.wait_code = Phase.QUEUED, now_s, ""
    if not job.held:
        enqueue(cell, job)
    return True


@machine.evolves(TrialSkipped)
def trial_skipped(cell: Cell, event: TrialSkipped, now_s: float) -> bool:
    """Whether the job competes for its whole gang from now on. A trial that has begun meanwhile counts."""
    job = cell.jobs.get(event.job_id)
    if job is None or job.trial is None or job.phase in (Phase.ACTIVE, Phase.TRIED):
        return False
    dequeue(cell, job)
    withdraw(cell, job)
    _run_whole(job, job.trial)
    if job.phase is not Phase.QUEUED:
        return False
    job.queued_since_s, job.wait_code = now_s, ""
    if not job.held:
        enqueue(cell, job)
    return True


@reacts(TrialPassed, TrialSkipped)
def place_whole(cell: Cell, event: TrialPassed | TrialSkipped, turn: Turn[Cell]) -> Look | None:
    """A cancellation that came while admission had the word takes effect now."""
    job = cell.jobs.get(event.job_id)
    if job is None or not turn.changed:
        return None
    if job.cancellation is not None:
        turn.emit(cancelled(job))
        return Look()
    if job.held:
        turn.emit(JobQueued(job_id=job.job_id, attempt=job.attempt, reason=on_hold()))
        return None
    return Look()


def _as_trial(spec: JobSpec, event: TrialOrdered) -> JobSpec:
    """The job as it would be with the GPUs of its trial."""
    gpus = replace(spec.gpus, count=event.gpus, max_nodes=None)
    limits = (spec.time_limit_s, event.limit_s)
    limit_s = min(limit for limit in limits if limit is not None)
    return replace(spec, gpus=gpus, elastic=None, time_limit_s=limit_s)


def _run_whole(job: Job, trial: Trial) -> None:
    """The next attempt is the job as its user described it; what was measured with fewer GPUs does not count."""
    job.spec, job.trial, job.profile = trial.asked, None, Profile()
    job.account.begin_anew()
