"""What users and operators ask for: cancel, pause, resume, priority, policy, settings."""

from __future__ import annotations

import msgspec

from libs.contracts.gateway import (
    JobCancelRequested,
    JobCodeChanged,
    JobMaxGpusChanged,
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
from libs.kernel.settings import take_setting
from libs.node.alarms import DIVERGED, IDLE, STALLED
from libs.policies.problem import PolicyOptions
from libs.policies.table import POLICIES
from services.placement.core.cell import Cell
from services.placement.core.jobs import Cancellation, Job, Phase
from services.placement.core.lifecycle.abandoning import abandon
from services.placement.core.lifecycle.arrivals import cancelled, on_hold
from services.placement.core.lifecycle.hearing import listeners
from services.placement.core.lifecycle.orders import resume_orders, suspend_orders
from services.placement.core.lifecycle.placing import leave_queue, preempt, preempted, stop_all, withdraw
from services.placement.core.lifecycle.queue import dequeue, enqueue, knows
from services.placement.core.lifecycle.suspending.pausing import before_it_began
from services.placement.core.lifecycle.table import Look, machine, reacts


@machine.evolves(JobCancelRequested)
def cancel_requested(cell: Cell, event: JobCancelRequested, now_s: float) -> bool:
    """Whether the attempt is to be stopped, and is not being stopped already."""
    job = cell.jobs.get(event.job_id)
    if job is None:
        return False
    if job.cancellation is None:
        job.cancellation = Cancellation(requested_by=event.requested_by, grace_s=event.grace_s)
    if job.phase is not Phase.ACTIVE or job.stopping:
        return False
    job.stopping = True
    cell.affects(job)
    return True


@reacts(JobCancelRequested)
def cancel(cell: Cell, event: JobCancelRequested, turn: Turn[Cell]) -> Look | None:
    """Cancel at once what holds nothing; while another service has the word (admission, failure analysis), wait."""
    job = cell.jobs.get(event.job_id)
    if job is None or job.cancellation is None:
        return None
    if job.phase in (Phase.WAITING, Phase.QUEUED):
        leave_queue(cell, job, "Cancelled", turn)
        turn.emit(cancelled(job))
        return Look()
    if turn.changed:
        reason = Reason(code="CancelRequested", message=f"cancelled by {event.requested_by}")
        freed = abandon(cell, job, reason, turn, goes_on=False)
        stop_all(cell, job, event.grace_s, reason, turn)
        return freed
    return None


@machine.evolves(JobPauseRequested)
def pause_requested(cell: Cell, event: JobPauseRequested, now_s: float) -> None:
    job = cell.jobs.get(event.job_id)
    if job is not None:
        job.held = True
        cell.affects(job)
        dequeue(cell, job)
        withdraw(cell, job)
        if job.phase is Phase.ACTIVE and not job.stopping and job.move is not None:
            job.move.halted = True


@reacts(JobPauseRequested)
def pause(cell: Cell, event: JobPauseRequested, turn: Turn[Cell]) -> Look | None:
    job = cell.jobs.get(event.job_id)
    if job is None:
        return None
    if job.phase is Phase.QUEUED:
        leave_queue(cell, job, "Paused", turn)
        turn.emit(JobQueued(job_id=job.job_id, attempt=job.attempt, reason=on_hold()))
        return Look()
    if job.phase is not Phase.ACTIVE or job.stopping:
        return None
    if job.suspended:
        leave_queue(cell, job, "Paused", turn)
        return Look()
    if job.move is None and any(node_id not in job.tasks.started for node_id in job.live_nodes()):
        preempt(cell, preempted(job, before_it_began(job)), turn)
        return Look()
    for order in suspend_orders(job):
        turn.emit(order)
    return Look(gpus_kept=True)


@machine.evolves(JobResumeRequested)
def resume_requested(cell: Cell, event: JobResumeRequested, now_s: float) -> None:
    job = cell.jobs.get(event.job_id)
    if job is None:
        return
    if _goes_on_at_once(job) and job.move is not None:
        job.move.halted = False
    if not job.held:
        return
    job.held = False
    cell.affects(job)
    if job.phase is Phase.QUEUED or job.suspended:
        job.wait_code, job.queued_since_s = "", now_s
    if job.phase is Phase.QUEUED:
        enqueue(cell, job)


@reacts(JobResumeRequested)
def resume(cell: Cell, event: JobResumeRequested, turn: Turn[Cell]) -> Look | None:
    job = cell.jobs.get(event.job_id)
    if job is None:
        return None
    if job.phase is Phase.QUEUED or job.suspended:
        return Look()
    if _goes_on_at_once(job):
        for order in resume_orders(cell, job):
            turn.emit(order)
    return None


def _goes_on_at_once(job: Job) -> bool:
    """Whether the job is resumed on the GPUs that it holds; one with a destination that waits for its state is not."""
    runs = job.phase is Phase.ACTIVE and not job.stopping and not job.suspended
    return runs and (job.move is None or not job.move.is_ready)


@machine.evolves(JobPriorityChanged)
def priority_changed(cell: Cell, event: JobPriorityChanged, now_s: float) -> None:
    job = cell.jobs.get(event.job_id)
    if job is None:
        return
    queued = _on_queue(job)
    if queued:
        dequeue(cell, job)
    job.priority = event.priority
    cell.affects(job)
    if queued:
        enqueue(cell, job)


@machine.evolves(JobMaxGpusChanged)
def max_gpus_changed(cell: Cell, event: JobMaxGpusChanged, now_s: float) -> None:
    job = cell.jobs.get(event.job_id)
    if job is not None:
        job.max_gpus = event.max_gpus
        cell.affects(job)


@machine.evolves(JobCodeChanged)
def code_changed(cell: Cell, event: JobCodeChanged, now_s: float) -> None:
    job = cell.jobs.get(event.job_id)
    if job is not None:
        job.spec = msgspec.structs.replace(job.spec, code_id=event.code_id)
        if job.trial is not None:
            asked = msgspec.structs.replace(job.trial.asked, code_id=event.code_id)
            job.trial = msgspec.structs.replace(job.trial, asked=asked)


@machine.evolves(PolicyChanged)
def policy_changed(cell: Cell, event: PolicyChanged, now_s: float) -> None:
    if event.policy not in POLICIES:
        return
    for listener in listeners:
        listener.policy_changing(cell, event.policy, now_s)
    if event.policy != cell.policy:
        _tell_anew(cell)
        cell.acquiring = {}
    cell.policy = event.policy
    _take_guests(cell, event.takes_guests)
    cell.options = PolicyOptions(
        space_sharing=event.space_sharing,
        heterogeneity_aware=event.heterogeneity_aware,
        water_filling=event.water_filling,
    )
    cell.cost_per_hour = event.cost_per_hour


def _tell_anew(cell: Cell) -> None:
    """Another policy has other causes, and other lines: what was told under the one before does not hold any more."""
    for job in cell.jobs.values():
        if not job.held and (job.phase is Phase.QUEUED or job.suspended):
            knows(cell, job, "")


def _take_guests(cell: Cell, takes_guests: bool) -> None:
    """Opportunistic jobs that wait, wait from now on for seats, or behind all others for GPUs; none that runs stops."""
    if takes_guests == cell.takes_guests:
        return
    waiting = [job for job in cell.jobs.values() if job.opportunistic and _on_queue(job)]
    for job in waiting:
        dequeue(cell, job)
    cell.takes_guests = takes_guests
    cell.seating.clear()
    for job in waiting:
        job.wait_code = ""
        enqueue(cell, job)


@machine.evolves(TenantConfigured)
def tenant_configured(cell: Cell, event: TenantConfigured, now_s: float) -> None:
    cell.tenant_weights[event.tenant] = event.weight
    if event.gpu_limit is None:
        cell.tenant_quotas.pop(event.tenant, None)
    else:
        cell.tenant_quotas[event.tenant] = event.gpu_limit
    said = {STALLED: event.on_stall, DIVERGED: event.on_divergence, IDLE: event.on_idle}
    cell.responses.setdefault(event.tenant, {}).update({alarm: word for alarm, word in said.items() if word})


@machine.evolves(SettingChanged)
def setting_changed(cell: Cell, event: SettingChanged, now_s: float) -> None:
    if take_setting(event, OWNER, cell.settings):
        cell.seating.clear()


@reacts(JobMaxGpusChanged, JobPriorityChanged, PolicyChanged, SettingChanged)
def decide_anew(
    cell: Cell, event: JobMaxGpusChanged | JobPriorityChanged | PolicyChanged | SettingChanged, turn: Turn[Cell]
) -> Look:
    return Look()


def _on_queue(job: Job) -> bool:
    return job.phase is Phase.QUEUED and not job.held
