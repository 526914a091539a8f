"""What users and operators ask for: cancel, pause, resume, priority, policy, settings."""

from __future__ import annotations

from libs.contracts import settings
from libs.contracts.gateway import (
    POLICY_NAMES,
    JobCancelRequested,
    JobPauseRequested,
    JobPriorityChanged,
    JobResumeRequested,
    PolicyChanged,
    SettingChanged,
    TenantConfigured,
    ThroughputsProvided,
)
from libs.contracts.introspection import JobProfiled
from libs.contracts.placement import OWNER, JobQueued
from libs.contracts.reasons import Reason
from libs.kernel.machine import Turn
from libs.policies.allocation.problem import PolicyOptions
from libs.policies.slicing.table import SLICING_POLICIES
from services.placement.core.arrivals import cancelled, on_hold
from services.placement.core.moving.abandoning import abandon
from services.placement.core.orders import resume_orders, suspend_orders
from services.placement.core.placing import stop_all, withdraw
from services.placement.core.queue import dequeue, enqueue
from services.placement.core.queue_pass import release_reservation_of
from services.placement.core.rounds.estimates import saw_beside
from services.placement.core.rounds.ledger import partner_of
from services.placement.core.rounds.rates import learn_colocated, learn_isolated
from services.placement.core.scheduling import schedule, tell_newcomer
from services.placement.core.slicing.service_time import begin_anew
from services.placement.core.state import Cancellation, Job, Phase, State
from services.placement.core.table import machine

NEWS_RATIO = 0.1
"""A rate that differs by less from the one known is the same rate."""


@machine.evolves(JobCancelRequested)
def cancel_requested(state: State, event: JobCancelRequested, now_s: float) -> bool:
    """Whether the attempt is to be stopped, and is not being stopped already."""
    job = state.jobs.get(event.job_id)
    if job is None:
        return False
    if job.cancellation is None:
        job.cancellation = Cancellation(requested_by=event.requested_by, grace_s=event.grace_s)
    if job.phase is not Phase.ACTIVE or job.stopping:
        return False
    job.stopping = True
    return True


@machine.decides(JobCancelRequested)
def cancel(state: State, event: JobCancelRequested, turn: Turn[State]) -> None:
    """Cancel at once what holds nothing; while another service has the word (admission, failure analysis), wait."""
    job = state.jobs.get(event.job_id)
    if job is None or job.cancellation is None:
        return
    if job.phase in (Phase.WAITING, Phase.QUEUED):
        release_reservation_of(state, job, "Cancelled", turn)
        turn.emit(cancelled(job))
        schedule(state, turn)
    elif turn.changed:
        reason = Reason(code="CancelRequested", message=f"cancelled by {event.requested_by}")
        abandon(job, reason, turn, goes_on=False)
        stop_all(state, job, event.grace_s, reason, turn)


@machine.evolves(JobPauseRequested)
def pause_requested(state: State, event: JobPauseRequested, now_s: float) -> None:
    job = state.jobs.get(event.job_id)
    if job is not None:
        job.held = True
        dequeue(state, job)
        withdraw(state, job)
        if job.phase is Phase.ACTIVE and not job.stopping and job.move is not None:
            job.move.halted = True


@machine.decides(JobPauseRequested)
def pause(state: State, event: JobPauseRequested, turn: Turn[State]) -> None:
    job = state.jobs.get(event.job_id)
    if job is None:
        return
    if job.phase is Phase.QUEUED:
        release_reservation_of(state, job, "Paused", turn)
        turn.emit(JobQueued(job_id=job.job_id, attempt=job.attempt, reason=on_hold()))
        schedule(state, turn)
    elif job.phase is Phase.ACTIVE and not job.stopping:
        for order in suspend_orders(job):
            turn.emit(order)
        if state.policy in SLICING_POLICIES:
            schedule(state, turn)


@machine.evolves(JobResumeRequested)
def resume_requested(state: State, event: JobResumeRequested, now_s: float) -> None:
    job = state.jobs.get(event.job_id)
    if job is None:
        return
    if _goes_on_at_once(job) and job.move is not None:
        job.move.halted = False
    if not job.held:
        return
    job.held = False
    if job.phase is Phase.QUEUED:
        job.wait_code, job.queued_since_s = "", now_s
        enqueue(state, job)


@machine.decides(JobResumeRequested)
def resume(state: State, event: JobResumeRequested, turn: Turn[State]) -> None:
    job = state.jobs.get(event.job_id)
    if job is None:
        return
    if job.phase is Phase.QUEUED or job.suspended:
        schedule(state, turn)
        tell_newcomer(state, job, turn)
    elif _goes_on_at_once(job):
        for order in resume_orders(job):
            turn.emit(order)


def _goes_on_at_once(job: Job) -> bool:
    """Whether the job is resumed on the GPUs that it holds; one whose destination waits for its state is not."""
    runs = job.phase is Phase.ACTIVE and not job.stopping and not job.suspended
    return runs and (job.move is None or not job.move.is_ready)


@machine.evolves(JobPriorityChanged)
def priority_changed(state: State, event: JobPriorityChanged, now_s: float) -> None:
    job = state.jobs.get(event.job_id)
    if job is None:
        return
    queued = _on_queue(job)
    if queued:
        dequeue(state, job)
    job.priority = event.priority
    if queued:
        enqueue(state, job)


@machine.evolves(PolicyChanged)
def policy_changed(state: State, event: PolicyChanged, now_s: float) -> None:
    if event.policy not in POLICY_NAMES:
        return
    if event.policy in SLICING_POLICIES and state.policy not in SLICING_POLICIES:
        begin_anew(state, now_s)
    state.policy = event.policy
    state.options = PolicyOptions(
        space_sharing=event.space_sharing,
        heterogeneity_aware=event.heterogeneity_aware,
        water_filling=event.water_filling,
    )
    state.cost_per_hour = event.cost_per_hour
    state.rounds, state.asked = None, ""


@machine.evolves(ThroughputsProvided)
def throughputs_provided(state: State, event: ThroughputsProvided, now_s: float) -> None:
    for row in event.isolated:
        learn_isolated(state, row)
    for pair in event.colocated:
        learn_colocated(state, pair)
    state.knowledge += 1


@machine.evolves(TenantConfigured)
def tenant_configured(state: State, event: TenantConfigured, now_s: float) -> None:
    state.tenant_weights[event.tenant] = event.weight


@machine.evolves(JobProfiled)
def job_profiled(state: State, event: JobProfiled, now_s: float) -> None:
    """Alone on its GPUs or beside another; only what is news: every change is a new allocation."""
    job = state.jobs.get(event.job_id)
    if job is None or job.phase is not Phase.ACTIVE or job.attempt != event.attempt:
        return
    partner = partner_of(state, job)
    if partner is not None:
        saw_beside(state, job, partner, event.rate_per_s)
        return
    if job.job_id in state.partners:
        return
    job.utilisation, job.memory_peak_bytes = event.gpu_utilisation_ratio, event.memory_peak_bytes
    if event.rate_per_s > 0 and not job.spec.throughputs:
        before = job.measured.get(job.gpu_type, 0.0)
        if abs(event.rate_per_s - before) > NEWS_RATIO * before:
            job.measured[job.gpu_type] = event.rate_per_s
            state.knowledge += 1


@machine.evolves(SettingChanged)
def setting_changed(state: State, event: SettingChanged, now_s: float) -> None:
    if event.service == OWNER and event.name in settings.names(OWNER):
        setattr(state, event.name, float(event.value))


@machine.decides(JobPriorityChanged, PolicyChanged, SettingChanged)
def decide_anew(state: State, event: JobPriorityChanged | PolicyChanged | SettingChanged, turn: Turn[State]) -> None:
    schedule(state, turn)


def _on_queue(job: Job) -> bool:
    return job.phase is Phase.QUEUED and not job.held
