"""Per event: what changes, and which attempts are granted."""

from __future__ import annotations

from libs.contracts.admission import JobAdmitted, JobRejected
from libs.contracts.base import Event
from libs.contracts.failure_analysis import JobAbandoned, RetryScheduled
from libs.contracts.gateway import JobArrived, JobPriorityChanged, TenantConfigured
from libs.contracts.placement import AttemptFailed, JobCancelled, JobSucceeded
from libs.contracts.quota import OWNER, QuotaDeferred, QuotaGranted
from libs.contracts.reasons import PendingReason, Reason
from libs.contracts.runtime import TimerFired
from libs.kernel.machine import Machine, Turn
from libs.kernel.words import counted, plural
from services.quota.core.state import Claim, State

machine: Machine[State] = Machine(OWNER)


@machine.evolves(TenantConfigured)
def tenant_configured(state: State, event: TenantConfigured, now_s: float) -> None:
    state.tenant(event.tenant).limit_gpus = event.gpu_limit


@machine.decides(
    TenantConfigured, JobPriorityChanged, AttemptFailed, JobSucceeded, JobCancelled, JobAbandoned, JobRejected
)
def grant_what_fits_now(state: State, event: Event, turn: Turn[State]) -> None:
    """Room or order has changed."""
    for tenant_name, tenant in state.tenants.items():
        if tenant.waiting:
            _grant(state, tenant_name, turn)


@machine.evolves(JobArrived)
def job_arrived(state: State, event: JobArrived, now_s: float) -> None:
    if event.job_id in state.claims:
        return
    spec = event.spec
    state.claims[event.job_id] = Claim(
        tenant=spec.tenant, gpus=spec.gpus.count, priority=spec.priority, seq=state.next_seq
    )
    state.next_seq += 1


@machine.evolves(JobAdmitted)
def job_admitted(state: State, event: JobAdmitted, now_s: float) -> None:
    claim = state.claims.get(event.job_id)
    if claim is not None and claim.attempt == 0:
        claim.attempt = 1
        state.wait(event.job_id)


@machine.decides(JobAdmitted)
def grant_or_defer(state: State, event: JobAdmitted, turn: Turn[State]) -> None:
    if event.job_id in state.claims:
        _grant_or_defer(state, event.job_id, turn)


@machine.evolves(JobPriorityChanged)
def priority_changed(state: State, event: JobPriorityChanged, now_s: float) -> None:
    claim = state.claims.get(event.job_id)
    if claim is None:
        return
    waits = claim.attempt > 0 and not claim.granted and event.job_id not in state.backing_off
    if waits:
        state.stop_waiting(event.job_id)
    claim.priority = event.priority
    if waits:
        state.wait(event.job_id)


@machine.evolves(AttemptFailed)
def attempt_failed(state: State, event: AttemptFailed, now_s: float) -> None:
    if event.job_id in state.claims:
        state.release(event.job_id)


@machine.evolves(RetryScheduled)
def retry_scheduled(state: State, event: RetryScheduled, now_s: float) -> None:
    claim = state.claims.get(event.job_id)
    if claim is not None:
        claim.attempt = event.attempt
        claim.not_before_s = event.not_before_s
        state.backing_off[event.job_id] = event.not_before_s


@machine.decides(RetryScheduled)
def wait_for_the_retry(state: State, event: RetryScheduled, turn: Turn[State]) -> None:
    if event.job_id not in state.claims:
        return
    delay_s = event.not_before_s - turn.now_s
    reason = Reason(
        code=PendingReason.BACKOFF,
        message=f"attempt {event.attempt} waits {delay_s:.1f} s after the failure",
        numbers={"not_before_s": event.not_before_s, "delay_s": delay_s},
    )
    turn.emit(QuotaDeferred(job_id=event.job_id, attempt=event.attempt, reason=reason))


@machine.evolves(TimerFired)
def retries_are_due(state: State, event: TimerFired, now_s: float) -> None:
    for job_id in [job_id for job_id, time_s in state.backing_off.items() if time_s <= now_s]:
        del state.backing_off[job_id]
        state.wait(job_id)


@machine.decides(TimerFired)
def grant_due_retries(state: State, event: TimerFired, turn: Turn[State]) -> None:
    for job_id in state.due_retries():
        _grant_or_defer(state, job_id, turn)


@machine.evolves(JobSucceeded, JobCancelled, JobAbandoned, JobRejected)
def job_ended(state: State, event: JobSucceeded | JobCancelled | JobAbandoned | JobRejected, now_s: float) -> None:
    if event.job_id in state.claims:
        state.release(event.job_id)
        state.stop_waiting(event.job_id)
        state.backing_off.pop(event.job_id, None)
        del state.claims[event.job_id]


@machine.evolves(QuotaDeferred)
def deferred(state: State, event: QuotaDeferred, now_s: float) -> None:
    if event.job_id not in state.backing_off:
        state.claims[event.job_id].not_before_s = None


@machine.evolves(QuotaGranted)
def granted(state: State, event: QuotaGranted, now_s: float) -> None:
    state.stop_waiting(event.job_id)
    claim = state.claims[event.job_id]
    claim.granted, claim.not_before_s = True, None
    state.tenant(claim.tenant).used_gpus += claim.gpus


def next_wakeup(state: State) -> float | None:
    """When the next retry is due."""
    return min(state.backing_off.values(), default=None)


def _grant_or_defer(state: State, job_id: str, turn: Turn[State]) -> None:
    """Grant what can be granted; tell the job if it is not among it."""
    claim = state.claims[job_id]
    _grant(state, claim.tenant, turn)
    if not claim.granted:
        turn.emit(QuotaDeferred(job_id=job_id, attempt=claim.attempt, reason=_limit_reached(state, claim)))


def _grant(state: State, tenant_name: str, turn: Turn[State]) -> None:
    """Grant the tenant's waiting attempts in order, up to the first that does not fit.

    No job is passed: a large job would otherwise wait for ever behind a stream of small ones. Only one that is
    larger than the whole limit (lowered since it was admitted) holds no other up.
    """
    tenant = state.tenant(tenant_name)
    for _, _, job_id in list(tenant.waiting):
        claim = state.claims[job_id]
        if tenant.limit_gpus is not None and claim.gpus > tenant.limit_gpus:
            continue
        if tenant.limit_gpus is not None and tenant.used_gpus + claim.gpus > tenant.limit_gpus:
            return
        numbers: dict[str, int | float | str | bool] = {"used_gpus": tenant.used_gpus, "gpus": claim.gpus}
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
        turn.emit(
            QuotaGranted(job_id=job_id, attempt=claim.attempt, tenant=tenant_name, gpus=claim.gpus, reason=reason)
        )


def _limit_reached(state: State, claim: Claim) -> Reason:
    tenant = state.tenant(claim.tenant)
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
