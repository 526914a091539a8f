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


@event("job.rejected.v1", owner=OWNER, subject="job_id")
class JobRejected(Event, frozen=True, kw_only=True):
    """Final: the job can never run on this cluster, even were it empty."""

    job_id: str
    reason: Reason
