"""A job's claim from its arrival to its end, and what changes the room or the order: per event, what follows."""

from __future__ import annotations

from libs.contracts.admission import JobAdmitted, JobRejected
from libs.contracts.agent import GpuRecovered, GpuUnhealthy, NodeJoined, NodeLeaving, NodeLeft
from libs.contracts.base import Event
from libs.contracts.failure_analysis import JobAbandoned, RetryScheduled
from libs.contracts.gateway import (
    JobArrived,
    JobPriorityChanged,
    NodeDrainRequested,
    NodeUndrainRequested,
    PolicyChanged,
    SettingChanged,
    TenantConfigured,
)
from libs.contracts.introspection import NodeLost
from libs.contracts.placement import AttemptFailed, JobCancelled, JobQueued, JobSucceeded, NodeCordoned, NodeReturned
from libs.contracts.quota import OWNER, QuotaDeferred
from libs.contracts.reasons import PendingReason, Reason
from libs.contracts.runtime import TimerFired
from libs.kernel.machine import Turn
from libs.kernel.settings import take_setting
from libs.policies.table import POLICIES
from services.quota.core import shares
from services.quota.core.granting import grant_or_defer
from services.quota.core.lending import share_out
from services.quota.core.nouns import Claim
from services.quota.core.reclaiming import next_rest_s
from services.quota.core.state import State
from services.quota.core.table import machine
from services.quota.core.upgrading import give_all_room, give_room


@machine.evolves(TenantConfigured)
def tenant_configured(state: State, event: TenantConfigured, now_s: float) -> None:
    tenant = state.tenant(event.tenant)
    tenant.limit_gpus, tenant.weight, tenant.parent = event.gpu_limit, event.weight, event.parent
    tenant.guarantees, tenant.limits, tenant.per_user = event.guarantees, event.limits, event.per_user
    tenant.lends, tenant.borrows = event.lend, event.borrow
    state.tree_changed()
    if event.parent:
        state.tenant(event.parent)
    shares.assign_types(state)
    shares.back_what_can_be(state, anew=True)


@machine.evolves(PolicyChanged)
def policy_changed(state: State, event: PolicyChanged, now_s: float) -> None:
    state.guests = event.takes_guests
    policy = POLICIES.get(event.policy)
    state.ways = list(policy.ways) if policy is not None else state.ways


@machine.evolves(SettingChanged)
def setting_changed(state: State, event: SettingChanged, now_s: float) -> None:
    take_setting(event, OWNER, state)


@machine.decides(
    TenantConfigured,
    PolicyChanged,
    SettingChanged,
    JobPriorityChanged,
    AttemptFailed,
    JobSucceeded,
    JobCancelled,
    JobAbandoned,
    JobRejected,
)
def give_what_fits_now(state: State, event: Event, turn: Turn[State]) -> None:
    """Room or order has changed."""
    give_all_room(state, turn)


@machine.decides(
    NodeJoined,
    NodeLost,
    NodeLeft,
    NodeLeaving,
    NodeDrainRequested,
    NodeUndrainRequested,
    GpuUnhealthy,
    GpuRecovered,
    NodeCordoned,
    NodeReturned,
)
def give_what_the_cell_has(state: State, event: Event, turn: Turn[State]) -> None:
    """The cell has become larger or smaller, which matters to guarantees alone."""
    if state.has_guarantees:
        give_all_room(state, turn)


@machine.evolves(JobArrived)
def job_arrived(state: State, event: JobArrived, now_s: float) -> None:
    if event.job_id in state.claims:
        return
    spec = event.spec
    state.claims[event.job_id] = Claim(
        tenant=spec.tenant,
        gpus=spec.gpus.count,
        priority=spec.priority,
        seq=state.next_seq,
        job_class=spec.job_class,
        total_steps=spec.total_steps,
        time_limit_s=spec.time_limit_s,
        request=spec.gpus,
        user=spec.user or event.submitted_by,
        restartable=spec.restartable,
    )
    state.next_seq += 1


@machine.evolves(JobAdmitted)
def job_admitted(state: State, event: JobAdmitted, now_s: float) -> None:
    claim = state.claims.get(event.job_id)
    if claim is not None and claim.attempt == 0:
        claim.attempt = 1
        state.wait(event.job_id, now_s)


@machine.decides(JobAdmitted)
def answer(state: State, event: JobAdmitted, turn: Turn[State]) -> None:
    if event.job_id in state.claims:
        grant_or_defer(state, event.job_id, turn)


@machine.evolves(JobPriorityChanged)
def priority_changed(state: State, event: JobPriorityChanged, now_s: float) -> None:
    if event.job_id in state.claims:
        state.reorder(event.job_id, event.priority)


@machine.evolves(AttemptFailed)
def attempt_failed(state: State, event: AttemptFailed, now_s: float) -> None:
    if event.job_id in state.claims:
        state.end_attempt(event.job_id, now_s)
        state.stop_waiting(event.job_id)  # one that failed where it stood still
        shares.back_what_can_be(state)


@machine.decides(JobQueued)
def answer_what_comes_back(state: State, event: JobQueued, turn: Turn[State]) -> None:
    """A victim has left its GPUs and waits for quota; or a job has lost its GPUs, and is to have others."""
    if not turn.changed:
        return
    if event.returns_to_quota:
        give_all_room(state, turn)
        claim = state.claims[event.job_id]
        if not (claim.granted or claim.guest or claim.told):
            grant_or_defer(state, event.job_id, turn)
    elif state.has_guarantees:
        share_out(state, turn)


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
    delay_s = max(0.0, event.not_before_s - turn.now_s)
    reason = Reason(
        code=PendingReason.BACKOFF,
        message=f"attempt {event.attempt} waits {delay_s:.1f} s after the failure",
        numbers={"not_before_s": event.not_before_s, "delay_s": delay_s},
    )
    turn.emit(QuotaDeferred(job_id=event.job_id, attempt=event.attempt, reason=reason))


@machine.evolves(TimerFired)
def retries_are_due(state: State, event: TimerFired, now_s: float) -> None:
    state.looked_s = now_s
    for job_id in [job_id for job_id, time_s in state.backing_off.items() if time_s <= now_s]:
        del state.backing_off[job_id]
        state.wait(job_id, now_s)


@machine.decides(TimerFired)
def answer_what_is_due(state: State, event: TimerFired, turn: Turn[State]) -> None:
    """Retries are due, or automatic jobs have waited for as long as they wait."""
    for job_id in state.due_retries():
        grant_or_defer(state, job_id, turn)
    if state.guests:
        for tenant_name in {state.claims[job_id].tenant: None for job_id in state.undecided}:
            give_room(state, tenant_name, turn)
    if state.has_guarantees:
        share_out(state, turn)


@machine.evolves(JobSucceeded, JobCancelled, JobAbandoned, JobRejected)
def job_ended(state: State, event: JobSucceeded | JobCancelled | JobAbandoned | JobRejected, now_s: float) -> None:
    if event.job_id in state.claims:
        state.end_attempt(event.job_id, now_s)
        state.stop_waiting(event.job_id)
        state.backing_off.pop(event.job_id, None)
        del state.claims[event.job_id]
        shares.back_what_can_be(state)


def next_wakeup(state: State) -> float | None:
    """When the next retry is due, an automatic job has waited for as long as it waits, or a victim has rested."""
    due = [min(state.backing_off.values())] if state.backing_off else []
    if state.guests and state.undecided:
        due.append(min(state.undecided.values()) + state.opportunistic_after_s)
    if state.has_guarantees and (rest_s := next_rest_s(state)) is not None:
        due.append(rest_s)
    return min(due, default=None)
