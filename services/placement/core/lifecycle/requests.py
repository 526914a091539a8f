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
)
from libs.contracts.placement import OWNER, JobQueued
from libs.contracts.reasons import Reason
from libs.kernel.machine import Turn
from libs.policies.problem import PolicyOptions
from libs.policies.slicing.table import SLICING_POLICIES
from services.placement.core.jobs import Cancellation, Job, Phase
from services.placement.core.lifecycle.abandoning import abandon
from services.placement.core.lifecycle.arrivals import cancelled, on_hold
from services.placement.core.lifecycle.hearing import listeners
from services.placement.core.lifecycle.orders import resume_orders, suspend_orders
from services.placement.core.lifecycle.placing import stop_all, withdraw
from services.placement.core.lifecycle.queue import dequeue, enqueue
from services.placement.core.lifecycle.table import Look, machine, reacts
from services.placement.core.state import State


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


@reacts(JobCancelRequested)
def cancel(state: State, event: JobCancelRequested, turn: Turn[State]) -> Look | None:
    """Cancel at once what holds nothing; while another service has the word (admission, failure analysis), wait."""
    job = state.jobs.get(event.job_id)
    if job is None or job.cancellation is None:
        return None
    if job.phase in (Phase.WAITING, Phase.QUEUED):
        _unqueue(state, job, "Cancelled", turn)
        turn.emit(cancelled(job))
        return Look()
    if turn.changed:
        reason = Reason(code="CancelRequested", message=f"cancelled by {event.requested_by}")
        abandon(job, reason, turn, goes_on=False)
        stop_all(state, job, event.grace_s, reason, turn)
    return None


def _unqueue(state: State, job: Job, code: str, turn: Turn[State]) -> None:
    for listener in listeners:
        listener.unqueued(state, job, code, turn)


@machine.evolves(JobPauseRequested)
def pause_requested(state: State, event: JobPauseRequested, now_s: float) -> None:
    job = state.jobs.get(event.job_id)
    if job is not None:
        job.held = True
        dequeue(state, job)
        withdraw(state, job)
        if job.phase is Phase.ACTIVE and not job.stopping and job.move is not None:
            job.move.halted = True


@reacts(JobPauseRequested)
def pause(state: State, event: JobPauseRequested, turn: Turn[State]) -> Look | None:
    job = state.jobs.get(event.job_id)
    if job is None:
        return None
    if job.phase is Phase.QUEUED:
        _unqueue(state, job, "Paused", turn)
        turn.emit(JobQueued(job_id=job.job_id, attempt=job.attempt, reason=on_hold()))
        return Look()
    if job.phase is not Phase.ACTIVE or job.stopping:
        return None
    for order in suspend_orders(job):
        turn.emit(order)
    return Look() if state.policy in SLICING_POLICIES else None


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


@reacts(JobResumeRequested)
def resume(state: State, event: JobResumeRequested, turn: Turn[State]) -> Look | None:
    job = state.jobs.get(event.job_id)
    if job is None:
        return None
    if job.phase is Phase.QUEUED or job.suspended:
        return Look(newcomer=job)
    if _goes_on_at_once(job):
        for order in resume_orders(job):
            turn.emit(order)
    return None


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
    for listener in listeners:
        listener.policy_changing(state, event.policy, now_s)
    state.policy = event.policy
    state.options = PolicyOptions(
        space_sharing=event.space_sharing,
        heterogeneity_aware=event.heterogeneity_aware,
        water_filling=event.water_filling,
    )
    state.cost_per_hour = event.cost_per_hour


@machine.evolves(TenantConfigured)
def tenant_configured(state: State, event: TenantConfigured, now_s: float) -> None:
    state.tenant_weights[event.tenant] = event.weight


@machine.evolves(SettingChanged)
def setting_changed(state: State, event: SettingChanged, now_s: float) -> None:
    if event.service == OWNER and event.name in settings.names(OWNER):
        setattr(state, event.name, float(event.value))


@reacts(JobPriorityChanged, PolicyChanged, SettingChanged)
def decide_anew(state: State, event: JobPriorityChanged | PolicyChanged | SettingChanged, turn: Turn[State]) -> Look:
    return Look()


def _on_queue(job: Job) -> bool:
    return job.phase is Phase.QUEUED and not job.held
