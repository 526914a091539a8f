"""The nouns of quota: a job's claim, a tenant, a node."""

from __future__ import annotations

import msgspec

from libs.contracts.jobs import GpuRequest, JobClass

Turnstile = tuple[int, int, str]
"""(-priority, order of arrival, job id): the order in which a tenant's jobs are granted."""


class Run(msgspec.Struct, kw_only=True):
    """How far a placed attempt is, as far as it was measured."""

    since_s: float
    """When it was placed, in seconds since the epoch."""
    done_minibatches: int = 0
    rate_per_s: float = 0.0
    """Mini-batches per second; 0 before the first profile."""


class Claim(msgspec.Struct, kw_only=True):
    """One job's claim on its tenant's limit, from admission until its end."""

    tenant: str
    gpus: int
    priority: int
    seq: int
    """Order of arrival."""
    job_class: JobClass = JobClass.GUARANTEED
    """What was asked for."""
    attempt: int = 0
    """The attempt asked for or granted; 0 before admission."""
    granted: bool = False
    """Its GPUs count against the tenant."""
    guest: bool = False
    """Its attempt may run as a guest, and counts against nothing."""
    offered: bool = False
    """The guest could be guaranteed where it is, as far as its GPUs go."""
    not_before_s: float | None = None
    """The retry must not start earlier; None once it was granted or told that it waits for room."""
    total_steps: float | None = None
    """Steps until it is done, where its user knows them."""
    time_limit_s: float | None = None
    """Of each attempt."""
    run: Run | None = None
    """Of its granted attempt; None while that has no GPUs."""
    request: GpuRequest | None = None
    """Which GPU types it may have, as it was asked for."""
    user: str = ""
    """The user with the limit that it counts against, beside its tenant's."""
    restartable: bool = False
    """It saves what it has done when it is told to stop."""
    gang: dict[str, list[int]] = {}
    """{node id: indices of its GPUs there}; empty while its attempt has none. One that is suspended goes on there."""
    placed_s: float | None = None
    """When its attempt was placed; None while it has no GPUs."""
    gpu_type: str = ""
    """For which it counts; empty: not known."""
    guarantee_of: str = ""
    """The tenant with the guarantee that it is within; empty: what it has is borrowed, or no tenant has a guarantee."""
    guarantee_key: str = ""
    """The part of that guarantee: a GPU type, or any."""
    is_victim: bool = False
    """It was told to give back what it had borrowed, and has not yet."""
    victim_s: float | None = None
    """When it was told so last; None: never."""
    told: str = ""
    """The cause for which it waits, as was said last; empty: nothing was said of this wait."""

    @property
    def as_granted(self) -> bool:
        """Whether it has as many GPUs as it was granted; an elastic job and a trial may have others."""
        return sum(map(len, self.gang.values())) == self.gpus

    def turnstile(self, job_id: str) -> Turnstile:
        """Its place among the tenant's waiting jobs."""
        return (-self.priority, self.seq, job_id)


class Node(msgspec.Struct, kw_only=True):
    """The GPUs of a node, as far as quota counts them."""

    incarnation: int
    gpu_types: list[str]
    """By the GPU's index."""
    present: bool = True
    draining: bool = False
    sick: dict[int, None] = {}
    """Indices of GPUs that are not healthy."""
    cordoned: dict[int, None] = {}
    """Indices of GPUs that get nothing new, because they are suspected to be broken; healthy or not."""
    in_pool: bool = False
    """It is set apart for trials: its GPUs are none of those that tenants share."""

    @property
    def takes_jobs(self) -> bool:
        """Whether it is there, not drained, and not set apart."""
        return self.present and not self.draining and not self.in_pool

    def can_use(self, index: int) -> bool:
        """Whether a job may be placed on the GPU."""
        return self.takes_jobs and index not in self.sick and index not in self.cordoned


class Tenant(msgspec.Struct, kw_only=True):
    """A tenant's limits, its guarantee, and what counts against it."""

    limit_gpus: int | None = None
    used_gpus: int = 0
    granted: dict[str, None] = {}
    """Jobs with an attempt that counts against the limit."""
    waiting: list[Turnstile] = []
    """Attempts that are due and wait for room, in order."""
    offers: list[tuple[int, str]] = []
    """(order of arrival, job id) of guests that could be guaranteed if there was room, ascending."""
    ran_s: list[float] = []
    """How long the latest ended attempts ran from their placement on."""
    used_of_type: dict[str, int] = {}
    """{GPU type: GPUs of `used_gpus` that count for it}; those of a type that is not known are under ""."""
    used_by_user: dict[str, dict[str, int]] = {}
    """{user: the same of its jobs}."""
    guaranteed_gpus: int = 0
    """GPUs of `used_gpus` that are within a guarantee, its own or one above it; the others are borrowed."""
    taken: dict[str, int] = {}
    """{GPU type, or any: GPUs of its own guarantee that jobs have taken}, its own jobs and those of tenants below."""
    weight: float = 1.0
    parent: str = ""
    """The one that its share is a part of; empty: at the root."""
    guarantees: dict[str, int] = {}
    """As in TenantConfigured, and so the next ones."""
    limits: dict[str, int] = {}
    per_user: dict[str, int] = {}
    lends: bool = True
    borrows: bool = True

    @property
    def borrowed_gpus(self) -> int:
        """GPUs that its jobs use beyond any guarantee."""
        return self.used_gpus - self.guaranteed_gpus

    @property
    def planned_gpus(self) -> int:
        """GPUs that its jobs may count on: its limit, else its guarantee."""
        return sum(self.guarantees.values()) if self.limit_gpus is None else self.limit_gpus

    def count(self, claim: Claim, sign: int) -> None:
        """The claim's GPUs count for its type and its user, from now on (1) or not any more (-1)."""
        of_user = self.used_by_user.setdefault(claim.user, {})
        for counts in (self.used_of_type, of_user):
            counts[claim.gpu_type] = counts.get(claim.gpu_type, 0) + sign * claim.gpus
            if not counts[claim.gpu_type]:
                del counts[claim.gpu_type]
        if not of_user:
            del self.used_by_user[claim.user]

    def is_too_large(self, gpus: int) -> bool:
        """Whether so many GPUs can never be within the limit."""
        return self.limit_gpus is not None and gpus > self.limit_gpus
