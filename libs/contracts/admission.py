"""Admission's verdicts."""

from __future__ import annotations

from libs.contracts.base import Event, event
from libs.contracts.reasons import Reason

OWNER = "admission"


@event("job.admitted.v1", owner=OWNER, subject="job_id")
class JobAdmitted(Event, frozen=True, kw_only=True):
    """The job can run on this cluster in principle; quota is asked next."""

    job_id: str
    reason: Reason


@event("job.held_back.v1", owner=OWNER, subject="job_id")
class JobHeldBack(Event, frozen=True, kw_only=True):
    """The job could run, and has to wait: for other jobs to end, or for its turn in its array. JobAdmitted follows, or
    JobRejected when what it waits for can never be."""

    job_id: str
    reason: Reason


@event("job.rejected.v1", owner=OWNER, subject="job_id")
class JobRejected(Event, frozen=True, kw_only=True):
    """Final: the job can never run: not on this cluster, even were it empty, or not after what it waits for."""

    job_id: str
    reason: Reason


EXCUSED = ("gpu_out_of_memory", "time_limit_exceeded")
"""Failures (`FailureClassified.failure`) that say nothing of a job when its trial has them: a model that is larger than
one GPU needs the whole gang, and a script without mini-batches has no third one."""


@event("trial.ordered.v1", owner=OWNER, subject="job_id")
class TrialOrdered(Event, frozen=True, kw_only=True):
    """Before its gang starts, the job runs its first mini-batches as an attempt of its own on few GPUs (Philly study,
    section 6, guideline 3).

    Until TrialPassed, or TrialSkipped, every attempt of the job is that trial.
    """

    job_id: str
    steps: int
    """Mini-batches, after which the trial ends itself."""
    gpus: int
    """World size of the trial."""
    limit_s: float
    """A trial that runs longer is stopped, and says nothing of the job."""
    reason: Reason


@event("trial.passed.v1", owner=OWNER, subject="job_id")
class TrialPassed(Event, frozen=True, kw_only=True):
    """The trial has found nothing: the next attempt has the whole gang. `reason` says where it says nothing of the job
    (`TrialExcused`), as when its model is larger than one GPU."""

    job_id: str
    attempt: int
    """Of the trial."""
    steps: int
    """Mini-batches that it did."""
    gpu_s: float
    """GPU seconds of the trial, over all of its attempts."""
    checkpoint: bool
    """Whether what it did is handed on to the next attempt; else that starts afresh."""
    reason: Reason


@event("trial.failed.v1", owner=OWNER, subject="job_id")
class TrialFailed(Event, frozen=True, kw_only=True):
    """The job has failed in its trial, and its gang never started. Follows JobAbandoned, which ends the job."""

    job_id: str
    attempt: int
    """Of the trial."""
    steps: int
    """Mini-batches that it did."""
    gpu_s: float
    """GPU seconds of the trial, over all of its attempts."""
    failure: str
    """As in FailureClassified."""
    reason: Reason


@event("trial.skipped.v1", owner=OWNER, subject="job_id")
class TrialSkipped(Event, frozen=True, kw_only=True):
    """The job runs without a trial: its command starts the ranks itself, or the trial has waited for too long.

    Where the trial has begun meanwhile, it goes on and counts.
    """

    job_id: str
    reason: Reason
