"""Quota's decisions: which of the waiting jobs may compete for GPUs."""

from __future__ import annotations

import msgspec

from libs.contracts.base import Event, event
from libs.contracts.reasons import Reason

OWNER = "quota"
GUARANTEED, BORROWED = "guaranteed", "borrowed"
"""From which share a grant is: within a guarantee, or what others do not use of theirs; empty: no tenant has one."""


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
    share: str = ""
    """`guaranteed` or `borrowed`: what is borrowed may be reclaimed; empty: no tenant has a guarantee."""
    guarantee_of: str = ""
    """The tenant with the guarantee that it is within: the job's own, or one above it; empty: it is borrowed."""
    gpu_type: str = ""
    """The type for which it counts until it is placed; empty: nothing is counted by type."""
    borrowed_from: dict[str, int] = {}
    """{tenant: GPUs of its guarantee that are not in use and lent for this}; GPUs of no guarantee are not in it."""


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
    share: str = ""
    """From which share it would be: `guaranteed`, `borrowed`; empty: a limit holds it up, or it is not known."""


class Victim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job that has borrowed GPUs, and gives them back."""

    job_id: str
    attempt: int
    tenant: str
    gpus: int
    """Of the whole gang; no part of one is ever reclaimed."""
    lost_gpu_s: float
    """GPU seconds of work that are done again: since its attempt was placed. 0 for a job that is suspended, or saves
    its work when it is told to stop, or has no GPUs yet."""
    way: str = ""
    """How it is expected to leave its GPUs: `suspend`, `restart` (it saves its work), `preempt` (it begins anew);
    empty: it has none."""
    placed_s: float | None = None
    """When its attempt was placed, in seconds since the epoch; None: it has no GPUs yet."""


@event("quota.reclaimed.v1", owner=OWNER, subject="job_id")
class QuotaReclaimed(Event, frozen=True, kw_only=True):
    """Jobs that have borrowed GPUs give them back to a job within its tenant's guarantee (Philly study, section 2.3).

    Placement takes the victims off their GPUs, suspended where the policy suspends, else stopped; each of their claims
    ends with JobQueued (`returns_to_quota`), or with the attempt, and is granted again in its turn.
    """

    job_id: str
    """The job for which they go."""
    tenant: str
    gpu_type: str
    short_gpus: int
    """GPUs that are missing for it."""
    in_use_ratio: float
    """Part of the GPUs of this type on which jobs are placed."""
    victims: list[Victim]
    """In the order in which they were chosen: those that have no GPUs or are suspended, those that save their work, the
    others; of each the least loss first, then the youngest."""
    lost_gpu_s: float
    """Of all victims together."""
    reason: Reason


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
