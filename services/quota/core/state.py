"""What quota knows: the tenants, what their granted attempts use, which jobs wait, and which run as guests."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from functools import cached_property

import msgspec

from libs.contracts import settings
from libs.contracts.jobs import JobClass
from libs.contracts.quota import OWNER
from libs.kernel.runs import remember
from libs.kernel.service import InvariantViolated
from libs.kernel.words import counted
from services.quota.core.holdings import Holdings
from services.quota.core.nouns import Claim, Node, Tenant
from services.quota.core.tree import Tree


class State(msgspec.Struct, kw_only=True, dict=True):
    """Initially empty; a tenant without configuration has no limit."""

    tenants: dict[str, Tenant] = {}
    claims: dict[str, Claim] = {}
    """{job id: claim} of every job that has not ended."""
    backing_off: dict[str, float] = {}
    """{job id: time in s} of retries that are not due yet."""
    undecided: dict[str, float] = {}
    """{job id: since when its attempt waits for room} of the automatic jobs among those that do."""
    ways: list[str] = []
    """How the policy in force makes jobs give GPUs up, the first that is open to one counts."""
    guests: bool = False
    """Whether there may be guests: an automatic job is one where quota would be long in coming."""
    opportunistic_after_s: float = settings.default(OWNER, "opportunistic_after_s")
    next_seq: int = 0
    nodes: dict[str, Node] = {}
    """{node id: node}, also of those that are away."""
    reclaim_above: float = settings.default(OWNER, "reclaim_above")
    reclaim_rest_s: float = settings.default(OWNER, "reclaim_rest_s")
    looked_s: float = 0.0
    """When time alone was last looked at."""

    @cached_property
    def holdings(self) -> Holdings:
        """What granted jobs hold of the cell. Derived of `nodes` and `claims`, and no part of snapshots."""
        return Holdings(self.nodes, self.claims)

    @cached_property
    def told(self) -> Counter[str]:
        """{cause: waiting jobs that were told it last}; "": nothing yet. Derived of `claims` and `tenants`, and no part
        of snapshots: `wait`, `stop_waiting` and `tell` keep it up to date."""
        return _told(self)

    @cached_property
    def tree(self) -> Tree:
        """Which tenant is above which. Derived of the configuration of `tenants`, and no part of snapshots."""
        return Tree(self.tenants)

    def tree_changed(self) -> None:
        """A tenant has another guarantee, or another one above it."""
        self.__dict__.pop("tree", None)

    def nodes_changed(self) -> None:
        """The cell has other GPUs than before, or jobs may have others of them."""
        self.__dict__.pop("holdings", None)

    def _changed(self, claim: Claim) -> None:
        """What the job holds, or may hold, is other than before."""
        if "holdings" in self.__dict__:
            self.holdings.changed(claim)

    @property
    def has_guarantees(self) -> bool:
        """Whether shares are in force: else each tenant has its limit alone, and the cell's size does not matter."""
        return self.tree.has_guarantees

    def tenant(self, name: str) -> Tenant:
        """The tenant, made on first sight."""
        tenant = self.tenants.get(name)
        if tenant is None:
            tenant = self.tenants[name] = Tenant()
        return tenant

    def wait(self, job_id: str, now_s: float) -> None:
        """Put the job's attempt among its tenant's waiting."""
        claim = self.claims[job_id]
        claim.told = ""
        insort(self.tenant(claim.tenant).waiting, claim.turnstile(job_id))
        self._count_told("", 1)
        if claim.job_class is JobClass.AUTOMATIC and not claim.gang:
            self.undecided[job_id] = now_s

    def stop_waiting(self, job_id: str) -> None:
        """Take the job's attempt off the waiting, if it is there."""
        claim = self.claims[job_id]
        if (place := self._place_of(job_id)) is not None:
            del self.tenant(claim.tenant).waiting[place]
            self._count_told(claim.told, -1)
        self.undecided.pop(job_id, None)

    def tell(self, job_id: str, cause: str) -> None:
        """The job knows why it waits."""
        claim = self.claims[job_id]
        if self._place_of(job_id) is not None:
            self._count_told(claim.told, -1)
            self._count_told(cause, 1)
        claim.told = cause

    def _place_of(self, job_id: str) -> int | None:
        """Of the job among its tenant's waiting ones; None: it is none of them."""
        claim = self.claims[job_id]
        waiting = self.tenant(claim.tenant).waiting
        place = bisect_left(waiting, claim.turnstile(job_id))
        return place if place < len(waiting) and waiting[place][2] == job_id else None

    def _count_told(self, cause: str, sign: int) -> None:
        if "told" in self.__dict__:
            self.told[cause] += sign

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
        tenant.count(claim, 1)
        self._changed(claim)

    def discharge(self, job_id: str) -> None:
        """The job's attempt does not count against its tenant any more, if it did."""
        claim = self.claims[job_id]
        if claim.granted:
            self.back(claim, "", "")
            claim.granted = claim.is_victim = False
            tenant = self.tenant(claim.tenant)
            tenant.used_gpus -= claim.gpus
            del tenant.granted[job_id]
            tenant.count(claim, -1)
            self._changed(claim)

    def count_for(self, claim: Claim, gpu_type: str) -> None:
        """The claim counts for this GPU type from now on, and is within no guarantee until one backs it."""
        if gpu_type == claim.gpu_type:
            return
        self.back(claim, "", "")
        tenant = self.tenant(claim.tenant)
        if claim.granted:
            tenant.count(claim, -1)
        claim.gpu_type = gpu_type
        if claim.granted:
            tenant.count(claim, 1)
        self._changed(claim)

    def back(self, claim: Claim, guarantee_of: str, key: str) -> None:
        """The granted claim is within this tenant's guarantee of these GPUs; empty: what it has is borrowed."""
        tenant = self.tenant(claim.tenant)
        if claim.guarantee_of:
            taken = self.tenant(claim.guarantee_of).taken
            taken[claim.guarantee_key] -= claim.gpus
            if not taken[claim.guarantee_key]:
                del taken[claim.guarantee_key]
            tenant.guaranteed_gpus -= claim.gpus
        claim.guarantee_of, claim.guarantee_key = guarantee_of, key
        if guarantee_of:
            taken = self.tenant(guarantee_of).taken
            taken[key] = taken.get(key, 0) + claim.gpus
            tenant.guaranteed_gpus += claim.gpus
        self._changed(claim)

    def put(self, claim: Claim, gang: dict[str, list[int]]) -> None:
        """The claim's attempt is on these GPUs from now on: {node id: indices}; empty: on none."""
        claim.gang = gang
        self._changed(claim)

    def ask_back(self, claim: Claim, now_s: float) -> None:
        """The claim has borrowed, and was told to give that back."""
        claim.is_victim, claim.victim_s = True, now_s
        self._changed(claim)

    def end_attempt(self, job_id: str, now_s: float) -> None:
        """The job's attempt is over: what it was granted is given back, and how long it ran is remembered."""
        claim = self.claims[job_id]
        self.discharge(job_id)
        self.withdraw(job_id)
        claim.guest = False
        claim.gang, claim.placed_s, claim.gpu_type = {}, None, ""
        if claim.run is not None:
            remember(self.tenant(claim.tenant).ran_s, now_s - claim.run.since_s)
            claim.run = None

    def stand_still(self, job_id: str) -> None:
        """What the job's attempt was granted is given back, and the attempt lasts: it is suspended where it is."""
        self.discharge(job_id)
        self.withdraw(job_id)

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


def _told(state: State) -> Counter[str]:
    waiting = (job_id for tenant in state.tenants.values() for _, _, job_id in tenant.waiting)
    return Counter(state.claims[job_id].told for job_id in waiting)


def check(state: State) -> None:
    """Every tenant's use is the sum of its granted claims: no quota is held by nothing."""
    if not state.holdings.agrees():
        raise InvariantViolated("what granted jobs hold is not what was counted as they were granted")
    if state.told != _told(state):
        raise InvariantViolated(f"{state.told} waiting jobs are said to know why they wait, and {_told(state)} do")
    if not state.tree.agrees():
        raise InvariantViolated("what is known of the tree of tenants is not how they are configured")
    granted: dict[str, dict[str, Claim]] = {name: {} for name in state.tenants}
    for job_id, claim in state.claims.items():
        if claim.granted and claim.guest:
            raise InvariantViolated(f"{job_id} is a guest and counts against tenant {claim.tenant}")
        if claim.granted:
            granted[claim.tenant][job_id] = claim
    for name, tenant in state.tenants.items():
        _check_tenant(state, name, tenant, granted[name])
        _check_guarantee(state, name, tenant)


def _check_guarantee(state: State, name: str, tenant: Tenant) -> None:
    """What is taken of a guarantee is what it backs, and never more than it is."""
    taken: dict[str, int] = {}
    for claim in state.claims.values():
        if claim.guarantee_of == name:
            taken[claim.guarantee_key] = taken.get(claim.guarantee_key, 0) + claim.gpus
    if taken != tenant.taken:
        raise InvariantViolated(f"tenant {name}: {tenant.taken} of its guarantee is said to be taken, and {taken} is")
    over = {key: gpus for key, gpus in taken.items() if gpus > tenant.guarantees.get(key, 0)}
    if over:
        raise InvariantViolated(f"tenant {name}: {over} of its guarantee of {tenant.guarantees} is taken")
    if sum(tenant.used_of_type.values()) != tenant.used_gpus or tenant.guaranteed_gpus > tenant.used_gpus:
        raise InvariantViolated(
            f"tenant {name} uses {tenant.used_gpus} GPUs, by type {tenant.used_of_type}, "
            f"{tenant.guaranteed_gpus} of them within guarantees"
        )


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
