"""Virtual clusters: a tree of tenants, each with a guarantee and limits (Philly study, ATC'19, section 2.3).

A guarantee of a tenant is partly that of the tenants below it; what is left (`net`) backs jobs of any of them. A job is
backed whole by one guarantee, its tenant's or the nearest one above with room for it, or it borrows all of its GPUs.
Limits count a tenant and all below it together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from libs.contracts.gateway import ANY_TYPE
from services.quota.core.capacity import gpu_types
from services.quota.core.nouns import Claim, Tenant
from services.quota.core.state import State


class Backing(NamedTuple):
    """What of which guarantee backs a claim."""

    gpu_type: str
    tenant: str
    key: str
    """A GPU type, or any."""


class Blocked(NamedTuple):
    """A limit that leaves no room for a claim."""

    tenant: str
    of: str
    """The GPU type that it is about, or any."""
    user: str
    """The user with that limit; empty: that of the whole tenant."""
    used_gpus: int
    limit_gpus: int
    is_for_good: bool = False
    """Whether the claim alone is larger than the limit."""


class Limit(NamedTuple):
    """A limit that counts a claim."""

    tenant: str
    of: str
    """A GPU type, or any."""
    user: str
    """Empty: that of the whole tenant."""
    gpus: int


class Drafted:
    """Claims that are about to be granted, and count as if they were."""

    def __init__(self) -> None:
        self._claims: list[tuple[Claim, str]] = []
        self._taken: dict[tuple[str, str], int] = {}

    def add(self, claim: Claim, backing: Backing) -> None:
        """It is granted as soon as there are GPUs."""
        self._claims.append((claim, backing.gpu_type))
        place = backing.tenant, backing.key
        self._taken[place] = self._taken.get(place, 0) + claim.gpus

    def drop(self, claim: Claim, backing: Backing) -> None:
        """It is being granted."""
        self._claims.remove((claim, backing.gpu_type))
        self._taken[backing.tenant, backing.key] -= claim.gpus

    def taken(self, tenant: str, key: str) -> int:
        """GPUs of the tenant's guarantee that they take."""
        return self._taken.get((tenant, key), 0)

    def gpus(self, tenants: Sequence[str], gpu_type: str = ANY_TYPE, user: str | None = None) -> int:
        """GPUs of theirs, of these tenants; of one type, or of one user, alone."""
        return sum(
            claim.gpus
            for claim, of_type in self._claims
            if claim.tenant in tenants and gpu_type in (ANY_TYPE, of_type) and user in (None, claim.user)
        )


def types_for(state: State, claim: Claim) -> list[str]:
    """The GPU types that may be the claim's, one that names no type of its own if types do not count."""
    if not state.tree.counts_types:
        return [""]
    if claim.gang:
        return [claim.gpu_type]
    known = gpu_types(state)
    return [gpu_type for gpu_type in known if claim.request is None or claim.request.accepts(gpu_type)] or [""]


def backing(state: State, claim: Claim, types: Sequence[str], drafted: Drafted) -> Backing | None:
    """The guarantee that has room for the claim: the tenant's own, else the nearest above; None: it must borrow."""
    for name in state.tree.chain(claim.tenant):
        rest, taken = state.tree.net(name), state.tenant(name).taken
        for gpu_type in types:
            for key in (gpu_type, ANY_TYPE):
                left = rest.get(key, 0) - taken.get(key, 0) - drafted.taken(name, key)
                if key in rest and left >= claim.gpus:
                    return Backing(gpu_type, name, key)
    return None


def key_of(state: State, claim: Claim, name: str) -> str:
    """The part of the tenant's guarantee that backs the claim as GPUs of its type: a type, or any."""
    left = state.tree.net(name).get(claim.gpu_type, 0) - state.tenant(name).taken.get(claim.gpu_type, 0)
    return claim.gpu_type if left >= claim.gpus else ANY_TYPE


def can_be_backed(state: State, claim: Claim) -> bool:
    """Whether a guarantee is large enough for the claim, whatever is in use of it."""
    keys, tree = [*types_for(state, claim), ANY_TYPE], state.tree
    return any(tree.net(name).get(key, 0) >= claim.gpus for name in tree.chain(claim.tenant) for key in keys)


def limits_on(state: State, claim: Claim) -> Iterator[Limit]:
    """Those of the claim's tenant first, then of those above; of each those of its user last."""
    for name in state.tree.chain(claim.tenant):
        tenant = state.tenant(name)
        limits = {} if tenant.limit_gpus is None else {ANY_TYPE: tenant.limit_gpus}
        for user, most in (("", limits | tenant.limits), (claim.user, tenant.per_user)):
            for key, gpus in most.items():
                yield Limit(name, key, user, gpus)


def blocked(state: State, claim: Claim, gpu_type: str, drafted: Drafted) -> Blocked | None:
    """The limit that leaves no room for the claim as GPUs of this type: one of its tenant, else of those above."""
    for name, key, user, limit_gpus in limits_on(state, claim):
        if key not in (ANY_TYPE, gpu_type):
            continue
        names = state.tree.below(name)
        in_use = used(state, names, key, user) + drafted.gpus(names, key, user or None)
        if in_use + claim.gpus > limit_gpus:
            return Blocked(name, key, user, in_use, limit_gpus)
    return None


def too_large(state: State, claim: Claim) -> Blocked | None:
    """The limit that the claim exceeds alone, whichever type it gets; None: there is a type where it does not."""
    found = None
    for gpu_type in types_for(state, claim):
        found = _too_large_for(state, claim, gpu_type)
        if found is None:
            return None
    return found


def _too_large_for(state: State, claim: Claim, gpu_type: str) -> Blocked | None:
    for name, key, user, limit_gpus in limits_on(state, claim):
        if key in (ANY_TYPE, gpu_type) and claim.gpus > limit_gpus:
            return Blocked(name, key, user, 0, limit_gpus, is_for_good=True)
    if state.has_guarantees and not state.tenant(claim.tenant).borrows and not can_be_backed(state, claim):
        guaranteed = sum(state.tenant(claim.tenant).guarantees.values())
        return Blocked(claim.tenant, ANY_TYPE, "", 0, guaranteed, is_for_good=True)
    return None


def used(state: State, names: Sequence[str], key: str, user: str) -> int:
    """GPUs of one type, or any, that these tenants use; `user`: of that user's jobs alone, where it is not empty."""
    tenants = [state.tenants[name] for name in names if name in state.tenants]
    if not user:
        return sum(t.used_gpus if key == ANY_TYPE else t.used_of_type.get(key, 0) for t in tenants)
    return sum(_of_user(tenant, key, user) for tenant in tenants)


def _of_user(tenant: Tenant, key: str, user: str) -> int:
    counts = tenant.used_by_user.get(user, {})
    return sum(counts.values()) if key == ANY_TYPE else counts.get(key, 0)


def back_what_can_be(state: State, *, anew: bool = False) -> None:
    """Jobs that have borrowed are backed by what has become free of a guarantee, those that were granted first first.

    Args:
        anew: guarantees have changed. What each backs is found out again, first for the jobs that one has backed.
    """
    if not state.has_guarantees and not anew:
        return
    if anew:
        backed = [claim for claim in state.claims.values() if claim.guarantee_of]
        for claim in backed:
            state.back(claim, "", "")
        _back(state, backed)
    for name, tenant in state.tenants.items():
        if tenant.borrowed_gpus and any(_has_room(state, above) for above in state.tree.chain(name)):
            _back(state, [state.claims[job_id] for job_id in tenant.granted])


def _has_room(state: State, name: str) -> bool:
    taken = state.tenant(name).taken
    return any(gpus > taken.get(key, 0) for key, gpus in state.tree.net(name).items())


def _back(state: State, claims: Sequence[Claim]) -> None:
    none_drafted = Drafted()
    without: dict[tuple[str, str], int] = {}
    """{(tenant, GPU type): GPUs of a job for which there was no room}: for no larger one there is any later."""
    for claim in claims:
        place = claim.tenant, claim.gpu_type
        if claim.guarantee_of or claim.is_victim or claim.gpus >= without.get(place, claim.gpus + 1):
            continue
        found = backing(state, claim, [claim.gpu_type], none_drafted)
        if found is not None:
            state.back(claim, found.tenant, found.key)
        else:
            without[place] = claim.gpus


def assign_types(state: State) -> None:
    """Granted jobs of no known GPU type, because types did not count yet, count for that with most GPUs left."""
    if not state.tree.counts_types:
        return
    left = dict(state.holdings.capacity)
    granted = [claim for claim in state.claims.values() if claim.granted]
    for claim in sorted(granted, key=lambda claim: not claim.gpu_type):
        if not claim.gpu_type:
            state.count_for(claim, max(types_for(state, claim), key=lambda gpu_type: left.get(gpu_type, 0)))
        left[claim.gpu_type] = left.get(claim.gpu_type, 0) - claim.gpus
