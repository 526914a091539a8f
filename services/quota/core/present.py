"""What quota knows of the present, for readers that ask what would start a job (`libs/forecast/`)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from libs.contracts.gateway import ANY_TYPE, TenantConfigured
from libs.contracts.jobs import JobClass
from libs.kernel.present import Present, PresentLength, PresentLimit
from services.quota.core import shares
from services.quota.core.estimating import known_rest_of
from services.quota.core.nouns import Claim, Tenant
from services.quota.core.state import State


def present(state: State, job_id: str, now_s: float) -> Present:
    """Tenants, and which limits hold the job up; or how long all jobs run."""
    claim = state.claims.get(job_id)
    waits = claim is not None and not (claim.granted or claim.guest or claim.job_class is JobClass.OPPORTUNISTIC)
    return Present(
        tenants={name: _configured(name, tenant) for name, tenant in state.tenants.items()},
        lengths={} if job_id else _lengths(state, now_s),
        limits={job_id: list(_limits(state, job_id, claim))} if claim is not None and waits else {},
        ahead_for_quota=_ahead(state, job_id, claim) if claim is not None and waits else 0,
        borrowers=_borrowers(state) if state.has_guarantees else [],
        retries_s=dict(state.backing_off),
    )


def _configured(name: str, tenant: Tenant) -> TenantConfigured:
    return TenantConfigured(
        tenant=name,
        gpu_limit=tenant.limit_gpus,
        requested_by="",
        weight=tenant.weight,
        parent=tenant.parent,
        guarantees=dict(tenant.guarantees),
        limits=dict(tenant.limits),
        per_user=dict(tenant.per_user),
        lend=tenant.lends,
        borrow=tenant.borrows,
    )


def _lengths(state: State, now_s: float) -> dict[str, PresentLength]:
    found = ((job_id, known_rest_of(claim, now_s)) for job_id, claim in state.claims.items())
    return {job_id: PresentLength(in_s=rest.in_s, basis=rest.basis) for job_id, rest in found if rest is not None}


def _limits(state: State, job_id: str, claim: Claim) -> Iterator[PresentLimit]:
    """The limits of its tenant and of those above it that leave no room for the job behind those that go before it."""
    place, waiting = claim.turnstile(job_id), state.tenant(claim.tenant).waiting
    ahead = [state.claims[each] for *_, each in waiting[: bisect_left(waiting, place)]]
    for name, key, user, limit_gpus in shares.limits_on(state, claim):
        before = sum(each.gpus for each in ahead if not user or each.user == user)
        needed = shares.used(state, state.tree.below(name), key, user) + before + claim.gpus
        if needed > limit_gpus and (key == ANY_TYPE or key in shares.types_for(state, claim)):
            yield PresentLimit(tenant=name, of=key, user=user, needed_gpus=needed)


def _ahead(state: State, job_id: str, claim: Claim) -> int:
    """Of its own tenant; where guarantees are in force, of all tenants."""
    tenants = state.tenants.values() if state.has_guarantees else [state.tenant(claim.tenant)]
    return sum(bisect_left(tenant.waiting, claim.turnstile(job_id)) for tenant in tenants)


def _borrowers(state: State) -> list[str]:
    """The latest first."""
    borrowing = ((job_id, claim) for job_id, claim in state.claims.items() if claim.granted and not claim.guarantee_of)
    found = [(claim.placed_s or 0.0, job_id) for job_id, claim in borrowing]
    return [job_id for _, job_id in sorted(found, reverse=True)]
