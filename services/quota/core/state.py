"""What quota knows: the tenants, what their granted attempts use, which jobs wait, and which run as guests."""

from __future__ import annotations

from bisect import bisect_left, insort

import msgspec

from libs.contracts import settings
from libs.contracts.jobs import JobClass
from libs.contracts.quota import OWNER
from libs.kernel.service import InvariantViolated
from libs.kernel.words import counted

Turnstile = tuple[int, int, str]
"""(-priority, order of arrival, job id): the order in which a tenant's jobs are granted."""
REMEMBERED_RUNS = 256
"""Run times of ended attempts that are kept of each tenant, the latest ones."""


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

    def turnstile(self, job_id: str) -> Turnstile:
        """Its place among the tenant's waiting jobs."""
        return (-self.priority, self.seq, job_id)


class Tenant(msgspec.Struct, kw_only=True):
    """A tenant's limit and what counts against it."""

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

    def room_for(self, gpus: int) -> bool:
        """Whether so many more GPUs are within the limit."""
        return self.limit_gpus is None or self.used_gpus + gpus <= self.limit_gpus

    def is_too_large(self, gpus: int) -> bool:
        """Whether so many GPUs can never be within the limit."""
        return self.limit_gpus is not None and gpus > self.limit_gpus


class State(msgspec.Struct, kw_only=True):
    """Initially empty; a tenant without configuration has no limit."""

    tenants: dict[str, Tenant] = {}
    claims: dict[str, Claim] = {}
    """{job id: claim} of every job that has not ended."""
    backing_off: dict[str, float] = {}
    """{job id: time in s} of retries that are not due yet."""
    undecided: dict[str, float] = {}
    """{job id: since when its attempt waits for room} of the automatic jobs among those that do."""
    guests: bool = False
    """Whether there may be guests: an automatic job is one where quota would be long in coming."""
    opportunistic_after_s: float = settings.default(OWNER, "opportunistic_after_s")
    next_seq: int = 0

    def tenant(self, name: str) -> Tenant:
        """The tenant, made on first sight."""
        tenant = self.tenants.get(name)
        if tenant is None:
            tenant = self.tenants[name] = Tenant()
        return tenant

    def wait(self, job_id: str, now_s: float) -> None:
        """Put the job's attempt among its tenant's waiting."""
        claim = self.claims[job_id]
        insort(self.tenant(claim.tenant).waiting, claim.turnstile(job_id))
        if claim.job_class is JobClass.AUTOMATIC:
            self.undecided[job_id] = now_s

    def stop_waiting(self, job_id: str) -> None:
        """Take the job's attempt off the waiting, if it is there."""
        claim = self.claims[job_id]
        waiting = self.tenant(claim.tenant).waiting
        place = bisect_left(waiting, claim.turnstile(job_id))
        if place < len(waiting) and waiting[place][2] == job_id:
            del waiting[place]
        self.undecided.pop(job_id, None)

    def reorder(self, job_id: str, priority: int) -> None:
        """The job's priority is another one; how long it has waited does not change."""
        claim, since_s = self.claims[job_id], self.undecided.get(job_id, 0.0)
        waits = claim.attempt > 0 and not claim.granted and not claim.guest and job_id not in self.backing_off
        if waits:
            self.stop_waiting(job_id)
        claim.priority = priority
        if waits:
            self.wait(job_id, since_s)

    def due_retries(self) -> list[str]:
        """Retries after their back-off that were neither granted nor deferred since."""
        return [
            job_id
            for tenant in self.tenants.values()
            for _, _, job_id in tenant.waiting
            if self.claims[job_id].not_before_s is not None
        ]

    def charge(self, job_id: str) -> None:
        """The job's attempt counts against its tenant from now on."""
        claim = self.claims[job_id]
        tenant = self.tenant(claim.tenant)
        claim.granted, claim.guest, claim.not_before_s = True, False, None
        tenant.used_gpus += claim.gpus
        tenant.granted[job_id] = None

    def discharge(self, job_id: str) -> None:
        """The job's attempt does not count against its tenant any more, if it did."""
        claim = self.claims[job_id]
        if claim.granted:
            claim.granted = False
            tenant = self.tenant(claim.tenant)
            tenant.used_gpus -= claim.gpus
            del tenant.granted[job_id]

    def end_attempt(self, job_id: str, now_s: float) -> None:
        """The job's attempt is over: what it was granted is given back, and how long it ran is remembered."""
        claim = self.claims[job_id]
        self.discharge(job_id)
        self.withdraw(job_id)
        claim.guest = False
        if claim.run is not None:
            ran_s = self.tenant(claim.tenant).ran_s
            ran_s.append(now_s - claim.run.since_s)
            del ran_s[:-REMEMBERED_RUNS]
            claim.run = None

    def offer(self, job_id: str) -> None:
        """The guest could be guaranteed where it is."""
        claim = self.claims[job_id]
        if not claim.offered:
            claim.offered = True
            insort(self.tenant(claim.tenant).offers, (claim.seq, job_id))

    def withdraw(self, job_id: str) -> None:
        """The guest could not be guaranteed where it is, or is guaranteed."""
        claim = self.claims[job_id]
        if claim.offered:
            claim.offered = False
            self.tenant(claim.tenant).offers.remove((claim.seq, job_id))


def check(state: State) -> None:
    """Every tenant's use is the sum of its granted claims: no quota is held by nothing."""
    granted: dict[str, dict[str, Claim]] = {name: {} for name in state.tenants}
    for job_id, claim in state.claims.items():
        if claim.granted and claim.guest:
            raise InvariantViolated(f"{job_id} is a guest and counts against tenant {claim.tenant}")
        if claim.granted:
            granted[claim.tenant][job_id] = claim
    for name, tenant in state.tenants.items():
        _check_tenant(state, name, tenant, granted[name])


def _check_tenant(state: State, name: str, tenant: Tenant, granted: dict[str, Claim]) -> None:
    asked = sum(claim.gpus for claim in granted.values())
    if tenant.used_gpus != asked or tenant.granted.keys() != granted.keys():
        charged = f"{counted(tenant.used_gpus, 'GPU')} ({', '.join(tenant.granted)})"
        raise InvariantViolated(
            f"tenant {name} is charged {charged}, its granted jobs ask for {asked} ({', '.join(granted)})"
        )
    if any(state.claims[job_id].granted or state.claims[job_id].guest for _, _, job_id in tenant.waiting):
        raise InvariantViolated(f"tenant {name}: a granted job still waits for its grant")
    if any(not state.claims[job_id].guest for _, job_id in tenant.offers):
        raise InvariantViolated(f"tenant {name}: a job that is no guest is offered to be guaranteed")
