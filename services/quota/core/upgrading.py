"""Guests that could be guaranteed where they are: when there is room, the oldest first (AntMan, OSDI'20, section 3.3).

An offer stands until placement withdraws it, because an owner comes or the GPUs are kept for a gang. So a guest for
which there was no room at first is upgraded as soon as there is, before anything new of its tenant is granted.
"""

from __future__ import annotations

from libs.contracts.placement import UpgradeOffered, UpgradeWithdrawn
from libs.contracts.quota import JobUpgraded, UpgradeDeclined
from libs.contracts.reasons import Number, Reason
from libs.kernel.machine import Turn
from libs.kernel.words import counted
from services.quota.core import shares
from services.quota.core.cell import Cell
from services.quota.core.granting import NONE_DRAFTED, grant, look_ahead
from services.quota.core.lending import share_out
from services.quota.core.nouns import Claim, Tenant
from services.quota.core.state import State
from services.quota.core.table import machine


@machine.evolves(UpgradeOffered)
def upgrade_offered(state: State, event: UpgradeOffered, now_s: float) -> None:
    claim = state.claims.get(event.job_id)
    if claim is not None and claim.guest and claim.attempt == event.attempt:
        state.offer(event.job_id)


@machine.decides(UpgradeOffered)
def answer(state: State, event: UpgradeOffered, turn: Turn[State]) -> None:
    """Upgrade it if it is its turn and there is room; else say that it stays what it is."""
    claim = state.claims.get(event.job_id)
    if claim is None or not claim.offered:
        return
    upgrade(state, claim.tenant, turn)
    if claim.guest:
        reason = _no_room(state.tenant(claim.tenant), event.job_id, claim)
        turn.emit(UpgradeDeclined(job_id=event.job_id, attempt=claim.attempt, reason=reason))


@machine.evolves(UpgradeWithdrawn)
def upgrade_withdrawn(state: State, event: UpgradeWithdrawn, now_s: float) -> None:
    """It stays a guest, also where quota has upgraded it in the meantime."""
    claim = state.claims.get(event.job_id)
    if claim is None or claim.attempt != event.attempt:
        return
    state.withdraw(event.job_id)
    if claim.granted:
        state.discharge(event.job_id)
        claim.guest = True


@machine.decides(UpgradeWithdrawn)
def pass_the_room_on(state: State, event: UpgradeWithdrawn, turn: Turn[State]) -> None:
    claim = state.claims.get(event.job_id)
    if claim is not None:
        give_room(state, claim.tenant, turn)


@machine.evolves(JobUpgraded)
def upgraded(state: State, event: JobUpgraded, now_s: float) -> None:
    state.withdraw(event.job_id)
    state.charge(event.job_id)
    shares.back_what_can_be(state)


def give_all_room(state: State, turn: Turn[State]) -> None:
    """What all tenants may use goes to their guests first, then to their jobs that wait."""
    for tenant_name in list(state.tenants):
        if state.has_guarantees:
            upgrade(state, tenant_name, turn)
        else:
            give_room(state, tenant_name, turn)
    if state.has_guarantees:
        share_out(state, turn)
        for tenant_name in list(state.tenants):
            look_ahead(state, tenant_name, turn)


def give_room(state: State, tenant_name: str, turn: Turn[State]) -> None:
    """What the tenant may use goes to its guests first, then to its jobs that wait."""
    upgrade(state, tenant_name, turn)
    if state.tenant(tenant_name).waiting:
        if state.has_guarantees:
            share_out(state, turn)
            look_ahead(state, tenant_name, turn)
        else:
            grant(state, tenant_name, turn)


def upgrade(state: State, tenant_name: str, turn: Turn[State]) -> None:
    """Upgrade the tenant's guests in order of arrival, up to the first for which there is no room."""
    tenant = state.tenant(tenant_name)
    for _, job_id in list(tenant.offers):
        claim = state.claims[job_id]
        if not _has_room(state, claim):
            return
        turn.emit(_upgraded(tenant, job_id, claim))


def _has_room(state: State, claim: Claim) -> bool:
    """Whether the guest's GPUs may count from now on; no job within a guarantee waits for them then."""
    if shares.blocked(state, claim, claim.gpu_type, NONE_DRAFTED) is not None:
        return False
    if not state.has_guarantees or shares.backing(state, claim, [claim.gpu_type], NONE_DRAFTED) is not None:
        return True
    usable = state.holdings.capacity.get(claim.gpu_type, 0)
    owed = any(
        shares.backing(state, state.claims[job_id], [claim.gpu_type], NONE_DRAFTED) is not None
        for tenant in state.tenants.values()
        for _, _, job_id in tenant.waiting
        if state.claims[job_id].gpus <= usable
    )
    return not owed and state.tenant(claim.tenant).borrows and Cell(state).free.get(claim.gpu_type, 0) >= claim.gpus


def _upgraded(tenant: Tenant, job_id: str, claim: Claim) -> JobUpgraded:
    limit = "no limit" if tenant.limit_gpus is None else f"limit {tenant.limit_gpus}"
    reason = Reason(
        code="WithinQuota",
        message=(
            f"tenant {claim.tenant} was granted {counted(tenant.used_gpus, 'GPU')} before ({limit}); "
            f"the {claim.gpus} that it has without an owner count from now on"
        ),
        numbers=_numbers(tenant, claim),
    )
    return JobUpgraded(job_id=job_id, attempt=claim.attempt, tenant=claim.tenant, gpus=claim.gpus, reason=reason)


def _no_room(tenant: Tenant, job_id: str, claim: Claim) -> Reason:
    oldest = tenant.offers[0][1]
    if oldest != job_id:
        return Reason(code="OlderGoesFirst", message=f"{oldest} came earlier and waits for quota, too")
    used = f"{tenant.used_gpus} of {counted(tenant.limit_gpus or 0, 'GPU')}"
    return Reason(
        code="ExceedsQuota",
        message=f"tenant {claim.tenant} uses {used}; there is no room for {claim.gpus} more",
        numbers=_numbers(tenant, claim),
    )


def _numbers(tenant: Tenant, claim: Claim) -> dict[str, Number]:
    numbers: dict[str, Number] = {"used_gpus": tenant.used_gpus, "gpus": claim.gpus}
    if tenant.limit_gpus is not None:
        numbers["limit_gpus"] = tenant.limit_gpus
    return numbers
