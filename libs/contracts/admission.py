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
