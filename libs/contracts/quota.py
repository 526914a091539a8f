"""Quota's decisions: which of the waiting jobs may compete for GPUs."""

from __future__ import annotations

from libs.contracts.base import Event, event
from libs.contracts.reasons import Reason

OWNER = "quota"


@event("quota.granted.v1", owner=OWNER, subject="job_id")
class QuotaGranted(Event, frozen=True, kw_only=True):
    """Attempt `attempt` of the job may be placed; its GPUs count against the tenant until the attempt ends."""

    job_id: str
    attempt: int
    """Counted from 1."""
    tenant: str
    gpus: int
    reason: Reason


@event("quota.deferred.v1", owner=OWNER, subject="job_id")
class QuotaDeferred(Event, frozen=True, kw_only=True):
    """The attempt waits: the tenant's limit is used up, or its retry is not due yet."""

    job_id: str
    attempt: int
    reason: Reason
