"""What quota knows: the tenants, what their granted attempts use, and which jobs wait."""

from __future__ import annotations

from bisect import bisect_left, insort

import msgspec

from libs.kernel.service import InvariantViolated
from libs.kernel.words import counted

Turnstile = tuple[int, int, str]
"""(-priority, order of arrival, job id): the order in which a tenant's jobs are granted."""


class Claim(msgspec.Struct, kw_only=True):
    """One job's claim on its tenant's limit, from admission until its end."""

    tenant: str
    gpus: int
    priority: int
    seq: int
    """Order of arrival."""
    attempt: int = 0
    """The attempt asked for or granted; 0 before admission."""
    granted: bool = False
    not_before_s: float | None = None
    """The retry must not start earlier; None once it was granted or told that it waits for room."""

    def turnstile(self, job_id: str) -> Turnstile:
        """Its place among the tenant's waiting jobs."""
        return (-self.priority, self.seq, job_id)


class Tenant(msgspec.Struct, kw_only=True):
    """A tenant's limit and what counts against it."""

    limit_gpus: int | None = None
    used_gpus: int = 0
    waiting: list[Turnstile] = []
    """Attempts that are due and wait for room, in order."""


class State(msgspec.Struct, kw_only=True):
    """Initially empty; a tenant without configuration has no limit."""

    tenants: dict[str, Tenant] = {}
    claims: dict[str, Claim] = {}
    """{job id: claim} of every job that has not ended."""
    backing_off: dict[str, float] = {}
    """{job id: time in s} of retries that are not due yet."""
    next_seq: int = 0

    def tenant(self, name: str) -> Tenant:
        """The tenant, made on first sight."""
        tenant = self.tenants.get(name)
        if tenant is None:
            tenant = self.tenants[name] = Tenant()
        return tenant

    def wait(self, job_id: str) -> None:
        """Put the job's attempt among its tenant's waiting."""
        claim = self.claims[job_id]
        insort(self.tenant(claim.tenant).waiting, claim.turnstile(job_id))

    def stop_waiting(self, job_id: str) -> None:
        """Take the job's attempt off the waiting, if it is there."""
        claim = self.claims[job_id]
        waiting = self.tenant(claim.tenant).waiting
        place = bisect_left(waiting, claim.turnstile(job_id))
        if place < len(waiting) and waiting[place][2] == job_id:
            del waiting[place]

    def due_retries(self) -> list[str]:
        """Retries after their back-off that were neither granted nor deferred since."""
        return [
            job_id
            for tenant in self.tenants.values()
            for _, _, job_id in tenant.waiting
            if self.claims[job_id].not_before_s is not None
        ]

    def release(self, job_id: str) -> None:
        """Give back what the job's granted attempt uses."""
        claim = self.claims[job_id]
        if claim.granted:
            claim.granted = False
            self.tenant(claim.tenant).used_gpus -= claim.gpus


def check(state: State) -> None:
    """Every tenant's use is the sum of its granted claims: no quota is held by nothing."""
    used: dict[str, int] = dict.fromkeys(state.tenants, 0)
    for claim in state.claims.values():
        if claim.granted:
            used[claim.tenant] += claim.gpus
    for name, tenant in state.tenants.items():
        if tenant.used_gpus != used[name]:
            raise InvariantViolated(
                f"tenant {name} is charged {counted(tenant.used_gpus, 'GPU')}, its granted jobs ask for {used[name]}"
            )
        if any(state.claims[job_id].granted for _, _, job_id in tenant.waiting):
            raise InvariantViolated(f"tenant {name}: a granted job still waits for its grant")
