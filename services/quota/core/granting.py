"""Which of a tenant's waiting attempts are granted, which become guests, and what the others are told."""

from __future__ import annotations

from libs.contracts.gateway import ANY_TYPE
from libs.contracts.jobs import JobClass
from libs.contracts.quota import OpportunityGranted, QuotaDeferred, QuotaGranted
from libs.contracts.reasons import Number, PendingReason, Reason
from libs.kernel.machine import Turn
from libs.kernel.words import counted, plural
from services.quota.core import because, shares
from services.quota.core.estimating import Expected, Line
from services.quota.core.lending import share_out
from services.quota.core.nouns import Claim, Tenant
from services.quota.core.state import State
from services.quota.core.table import machine

NONE_DRAFTED = shares.Drafted()


@machine.evolves(QuotaGranted)
def granted(state: State, event: QuotaGranted, now_s: float) -> None:
    state.stop_waiting(event.job_id)
    state.charge(event.job_id)
    claim = state.claims[event.job_id]
    state.count_for(claim, event.gpu_type)
    if event.guarantee_of:
        state.back(claim, event.guarantee_of, shares.key_of(state, claim, event.guarantee_of))


@machine.evolves(OpportunityGranted)
def became_a_guest(state: State, event: OpportunityGranted, now_s: float) -> None:
    state.stop_waiting(event.job_id)
    claim = state.claims[event.job_id]
    claim.guest, claim.not_before_s = True, None


@machine.evolves(QuotaDeferred)
def deferred(state: State, event: QuotaDeferred, now_s: float) -> None:
    claim = state.claims[event.job_id]
    state.tell(event.job_id, event.reason.code)
    if event.job_id not in state.backing_off:
        claim.not_before_s = None


def grant_or_defer(state: State, job_id: str, turn: Turn[State]) -> None:
    """Grant what can be granted; tell the job if it is not among it. One that uses no quota waits for none."""
    claim = state.claims[job_id]
    if claim.job_class is JobClass.OPPORTUNISTIC:
        reason = Reason(code="AskedFor", message="it was submitted as opportunistic, and uses no quota")
        turn.emit(_opportunity(job_id, claim, reason))
        return
    if state.has_guarantees:
        share_out(state, turn, [job_id])
        look_ahead(state, claim.tenant, turn)
        return
    expected = grant(state, claim.tenant, turn).get(job_id)
    if not claim.granted and not claim.guest:
        turn.emit(_deferred(state, job_id, claim, expected))


def grant(state: State, tenant_name: str, turn: Turn[State]) -> dict[str, Expected]:
    """Grant the tenant's waiting attempts in order, up to the first that does not fit, and let others be guests.

    No job is passed: a large job would otherwise wait for ever behind a stream of small ones. Only one that is
    larger than the whole limit (lowered since it was admitted) holds no other up, nor does one that uses no quota and
    whose retry is due.

    Returns:
        {job that waits on: when there is room for it}, where there may be guests.
    """
    tenant = state.tenant(tenant_name)
    for _, _, job_id in list(tenant.waiting):
        claim = state.claims[job_id]
        if shares.too_large(state, claim) is not None or claim.job_class is JobClass.OPPORTUNISTIC:
            continue
        types = shares.types_for(state, claim)
        stops = [shares.blocked(state, claim, gpu_type, NONE_DRAFTED) for gpu_type in types]
        if None in stops:
            turn.emit(_granted(tenant_name, tenant, job_id, claim, types[stops.index(None)]))
        elif stops[0] is not None and not stops[0].user:
            break
    return look_ahead(state, tenant_name, turn)


def look_ahead(state: State, tenant_name: str, turn: Turn[State]) -> dict[str, Expected]:
    """An automatic job that would wait too long becomes a guest; those behind it are served that much earlier.

    Returns:
        {job that waits on: when there is room for it}, where there may be guests.
    """
    tenant = state.tenant(tenant_name)
    if not state.guests or not tenant.waiting:
        return {}
    line, found = Line(state, tenant, turn.now_s), {}
    for _, _, job_id in list(tenant.waiting):
        claim = state.claims[job_id]
        if claim.job_class is JobClass.OPPORTUNISTIC or claim.gang:  # it goes on where it stands still, with quota
            continue
        since_s = state.undecided.get(job_id)
        if tenant.is_too_large(claim.gpus):
            if since_s is not None:
                turn.emit(_opportunity(job_id, claim, _too_large(claim, tenant)))
            continue
        expected = line.expected(claim.gpus)
        waited_s = turn.now_s - since_s if since_s is not None else 0.0
        if since_s is not None and waited_s + expected.in_s >= state.opportunistic_after_s:
            turn.emit(_after_an_estimate(state, job_id, claim, waited_s, expected))
            continue
        line.serve(claim.gpus)
        found[job_id] = expected
    return found


def _stop(state: State, claim: Claim) -> shares.Blocked | None:
    """The limit that holds the job up, or one that is ahead of it."""
    for job in (claim, *(state.claims[job_id] for _, _, job_id in state.tenant(claim.tenant).waiting)):
        stop = shares.blocked(state, job, shares.types_for(state, job)[0], NONE_DRAFTED)
        if stop is not None:
            return stop
    return None


def _granted(tenant_name: str, tenant: Tenant, job_id: str, claim: Claim, gpu_type: str) -> QuotaGranted:
    numbers: dict[str, Number] = {"used_gpus": tenant.used_gpus, "gpus": claim.gpus}
    limit = "no limit"
    if tenant.limit_gpus is not None:
        numbers["limit_gpus"] = tenant.limit_gpus
        limit = f"limit {tenant.limit_gpus}"
    used, more = counted(tenant.used_gpus, "GPU"), counted(claim.gpus, "more is", "more are")
    reason = Reason(
        code="WithinQuota",
        message=f"tenant {tenant_name} was granted {used} before ({limit}); {more} granted now",
        numbers=numbers,
    )
    return QuotaGranted(
        job_id=job_id,
        attempt=claim.attempt,
        tenant=tenant_name,
        gpus=claim.gpus,
        gpu_type=gpu_type,
        reason=reason,
    )


def _opportunity(
    job_id: str,
    claim: Claim,
    reason: Reason,
    *,
    expected_wait_s: float | None = None,
    threshold_s: float | None = None,
    basis: str = "",
) -> OpportunityGranted:
    return OpportunityGranted(
        job_id=job_id,
        attempt=claim.attempt,
        tenant=claim.tenant,
        gpus=claim.gpus,
        expected_wait_s=expected_wait_s,
        threshold_s=threshold_s,
        basis=basis,
        reason=reason,
    )


def _too_large(claim: Claim, tenant: Tenant) -> Reason:
    limit_gpus = tenant.limit_gpus or 0
    return Reason(
        code="LargerThanQuota",
        message=f"{counted(claim.gpus, 'GPU')} asked for; tenant {claim.tenant} may use at most {limit_gpus}",
        numbers={"gpus": claim.gpus, "limit_gpus": limit_gpus},
    )


def _after_an_estimate(
    state: State, job_id: str, claim: Claim, waited_s: float, expected: Expected
) -> OpportunityGranted:
    tenant, threshold_s = state.tenant(claim.tenant), state.opportunistic_after_s
    wait_s = round(waited_s + expected.in_s, 3) if expected.basis else None
    wait = "not foreseen" if wait_s is None else f"expected after {wait_s:.0f} s ({expected.basis})"
    limit_gpus = tenant.limit_gpus or 0
    reason = Reason(
        code="LongWait",
        message=(
            f"tenant {claim.tenant} uses {tenant.used_gpus} of {counted(limit_gpus, 'GPU')}; room for {claim.gpus} "
            f"more is {wait}, and it waits for less than {threshold_s:g} s"
        ),
        numbers={
            "used_gpus": tenant.used_gpus,
            "limit_gpus": limit_gpus,
            "gpus": claim.gpus,
            "waited_s": round(waited_s, 3),
        },
    )
    return _opportunity(job_id, claim, reason, expected_wait_s=wait_s, threshold_s=threshold_s, basis=expected.basis)


def _deferred(state: State, job_id: str, claim: Claim, expected: Expected | None) -> QuotaDeferred:
    is_known = expected is not None and bool(expected.basis)
    return QuotaDeferred(
        job_id=job_id,
        attempt=claim.attempt,
        reason=_limit_reached(state, claim),
        expected_wait_s=round(expected.in_s, 3) if expected is not None and is_known else None,
        basis=expected.basis if expected is not None else "",
    )


def _limit_reached(state: State, claim: Claim) -> Reason:
    tenant = state.tenant(claim.tenant)
    if state.tree.counts_types or tenant.parent:
        stop = _stop(state, claim)
        if stop is not None and (stop.user or stop.tenant != claim.tenant or stop.of != ANY_TYPE):
            return because.exceeds(claim, stop)
    limit_gpus = tenant.limit_gpus if tenant.limit_gpus is not None else -1
    ahead = sum(1 for place in tenant.waiting if place < claim.turnstile(""))
    return Reason(
        code=PendingReason.EXCEEDS_QUOTA,
        message=(
            f"tenant {claim.tenant} was granted {tenant.used_gpus} of {counted(limit_gpus, 'GPU')}, "
            f"{ahead} of its jobs {plural(ahead, 'goes', 'go')} first; this one asks for {claim.gpus}"
        ),
        numbers={
            "used_gpus": tenant.used_gpus,
            "limit_gpus": limit_gpus,
            "gpus": claim.gpus,
            "jobs_ahead": ahead,
        },
    )
