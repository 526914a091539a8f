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
    job_class: str = "guaranteed"
    """`guaranteed`: its GPUs count against the tenant; an opportunistic attempt gets OpportunityGranted instead."""


@event("quota.deferred.v1", owner=OWNER, subject="job_id")
class QuotaDeferred(Event, frozen=True, kw_only=True):
    """The attempt waits: the tenant's limit is used up, or its retry is not due yet."""

    job_id: str
    attempt: int
    reason: Reason
    expected_wait_s: float | None = None
    """After which there is quota for it, as estimated; None: not estimated."""
    basis: str = ""
    """What the estimate rests on, as in OpportunityGranted."""


@event("opportunity.granted.v1", owner=OWNER, subject="job_id")
class OpportunityGranted(Event, frozen=True, kw_only=True):
    """Attempt `attempt` of the job may be placed as a guest, on what guaranteed jobs leave; it uses no quota."""

    job_id: str
    attempt: int
    """Counted from 1."""
    tenant: str
    gpus: int
    expected_wait_s: float | None = None
    """The estimated wait for quota that was too long; None: the job asked for this class, or can have no other."""
    threshold_s: float | None = None
    """The longest wait for which an automatic job waits."""
    basis: str = ""
    """What the estimate rests on, of the job that decided it: `remaining_work`, `time_limit`, `residual_life`,
    `time_so_far`; empty: nothing was estimated."""
    reason: Reason


@event("job.upgraded.v1", owner=OWNER, subject="job_id")
class JobUpgraded(Event, frozen=True, kw_only=True):
    """The opportunistic attempt is guaranteed from now on, on the GPUs that it has; they count against the tenant."""

    job_id: str
    attempt: int
    tenant: str
    gpus: int
    reason: Reason


@event("upgrade.declined.v1", owner=OWNER, subject="job_id")
class UpgradeDeclined(Event, frozen=True, kw_only=True):
    """The tenant has no quota for the attempt that could be guaranteed where it is: it stays a guest for now."""

    job_id: str
    attempt: int
    reason: Reason
