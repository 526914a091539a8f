"""Per event: what changes, and which verdict follows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from libs.contracts.admission import JobAdmitted, JobHeldBack, JobRejected
from libs.contracts.agent import NodeJoined, NodeLeft
from libs.contracts.failure_analysis import InputQuarantined, InputReleased, JobAbandoned
from libs.contracts.features import is_in_pool
from libs.contracts.gateway import (
    ArrayArrived,
    DagArrived,
    JobArrived,
    JobCancelRequested,
    JobPauseRequested,
    JobResumeRequested,
    PolicyChanged,
    TenantConfigured,
)
from libs.contracts.placement import JobCancelled, JobSucceeded
from libs.contracts.reasons import PendingReason
from libs.kernel.machine import Turn
from services.admission.core.fit import NeverFits, judge
from services.admission.core.order import array_limit, never_met, not_met, quarantined
from services.admission.core.pending import Group, Pending
from services.admission.core.shares import Share
from services.admission.core.state import State
from services.admission.core.table import machine
from services.admission.core.trials import next_wakeup, order_trial, say_it_failed

__all__ = ["machine", "next_wakeup"]


@machine.evolves(NodeJoined)
def node_joined(state: State, event: NodeJoined, now_s: float) -> None:
    if is_in_pool(event.features):
        state.leave(event.node_id)
        return
    counts: dict[str, int] = {}
    for gpu in event.gpus:
        counts[gpu.gpu_type] = counts.get(gpu.gpu_type, 0) + 1
    state.join(event.node_id, counts, (event.cpus, event.memory_bytes), event.features)


@machine.evolves(NodeLeft)
def node_left(state: State, event: NodeLeft, now_s: float) -> None:
    state.leave(event.node_id)


@machine.evolves(TenantConfigured)
def tenant_configured(state: State, event: TenantConfigured, now_s: float) -> None:
    state.limits.pop(event.tenant, None)
    if event.gpu_limit is not None:
        state.limits[event.tenant] = event.gpu_limit
    state.shares.pop(event.tenant, None)
    if event.parent or event.limits or event.per_user:
        state.shares[event.tenant] = Share(parent=event.parent, limits=event.limits, per_user=event.per_user)


@machine.evolves(PolicyChanged)
def policy_changed(state: State, event: PolicyChanged, now_s: float) -> None:
    state.guests = event.takes_guests


@machine.evolves(ArrayArrived)
def array_arrived(state: State, event: ArrayArrived, now_s: float) -> None:
    """Known before its jobs: something may wait for it that arrives between it and them."""
    state.groups[event.group_id] = Group(size=len(event.indices), at_once=event.at_once)


@machine.evolves(DagArrived)
def dag_arrived(state: State, event: DagArrived, now_s: float) -> None:
    state.groups[event.group_id] = Group(size=len(event.jobs))


@machine.evolves(JobArrived)
def job_arrived(state: State, event: JobArrived, now_s: float) -> None:
    if event.job_id in state.pending:  # the first arrival of an id counts
        return
    pending = state.pending[event.job_id] = Pending(spec=event.spec, group=event.group)
    for dependency in event.after:
        state.wait_for(event.job_id, pending, dependency)
    state.jobs[event.job_id] = event.group.group_id if event.group is not None else ""
    state.put_off([event.job_id])


@machine.decides(JobArrived)
def judge_arrival(state: State, event: JobArrived, turn: Turn[State]) -> None:
    _look_at(state, [event.job_id], turn)


@machine.decides(NodeJoined)
def judge_the_unjudged(state: State, event: NodeJoined, turn: Turn[State]) -> None:
    """The first node has joined: what came earlier can be judged now."""
    _look_at(state, list(state.unjudged), turn)


@machine.evolves(JobAdmitted)
def admitted(state: State, event: JobAdmitted, now_s: float) -> list[str]:
    """The job of its array that may go next, where there is room for one more."""
    pending = state.pending.get(event.job_id)
    if pending is None:
        return []
    group = state.group_of(pending)
    state.forget_pending(event.job_id)
    if group is None:
        return []
    if not pending.cancelled:
        group.through[event.job_id] = None
    return group.next_in_turn()


@machine.evolves(JobHeldBack)
def held_back(state: State, event: JobHeldBack, now_s: float) -> None:
    state.unjudged.pop(event.job_id, None)
    pending = state.pending.get(event.job_id)
    if pending is not None and event.reason.code == PendingReason.ARRAY_LIMIT:
        state.join_turnstile(event.job_id, pending)


@machine.evolves(JobPauseRequested)
def pause_requested(state: State, event: JobPauseRequested, now_s: float) -> None:
    pending = state.pending.get(event.job_id)
    if pending is not None:
        pending.paused = True
        state.leave_turnstile(event.job_id, pending)


@machine.evolves(JobResumeRequested)
def resume_requested(state: State, event: JobResumeRequested, now_s: float) -> None:
    pending = state.pending.get(event.job_id)
    if pending is not None:
        pending.paused = False
        state.put_off([event.job_id])


@machine.evolves(JobCancelRequested)
def cancel_requested(state: State, event: JobCancelRequested, now_s: float) -> None:
    pending = state.pending.get(event.job_id)
    if pending is not None:
        pending.cancelled = True
        state.put_off([event.job_id])


@machine.decides(JobResumeRequested, JobCancelRequested)
def say_again(state: State, event: JobResumeRequested | JobCancelRequested, turn: Turn[State]) -> None:
    """A job that is held back has to hear for what it still waits, or is let go, to be cancelled."""
    _look_at(state, [event.job_id], turn)


@machine.evolves(InputQuarantined)
def input_quarantined(state: State, event: InputQuarantined, now_s: float) -> None:
    state.quarantined[event.input] = event.reason.message


@machine.evolves(InputReleased)
def input_released(state: State, event: InputReleased, now_s: float) -> list[str]:
    """The jobs that name it."""
    state.quarantined.pop(event.input, None)
    named = [job_id for job_id, pending in state.pending.items() if event.input in pending.spec.data]
    state.put_off(named)
    return named


@machine.decides(InputReleased)
def let_those_go_that_name_it(state: State, event: InputReleased, turn: Turn[State]) -> None:
    _look_at(state, turn.changed, turn)


@machine.evolves(JobSucceeded)
def succeeded(state: State, event: JobSucceeded, now_s: float) -> list[str]:
    """The jobs for which something has changed."""
    return state.end(event.job_id, succeeded=True)


@machine.evolves(JobCancelled, JobAbandoned, JobRejected)
def ended_without_success(state: State, event: JobCancelled | JobAbandoned | JobRejected, now_s: float) -> list[str]:
    """The jobs for which something has changed. A trial that the job was abandoned in ends with TrialFailed."""
    if isinstance(event, JobCancelled):
        state.trials.pop(event.job_id, None)
    return state.end(event.job_id, succeeded=False)


@machine.decides(JobSucceeded, JobCancelled, JobAbandoned)
def let_others_go(state: State, event: JobSucceeded | JobCancelled | JobAbandoned, turn: Turn[State]) -> None:
    if isinstance(event, JobAbandoned):
        say_it_failed(state, event, turn)
    _look_at(state, turn.changed, turn)


def _look_at(state: State, job_ids: Iterable[str], turn: Turn[State]) -> None:
    """Say what follows for each of these jobs, and for those for which that changes something in turn.

    Nothing while there is no node: they are looked at when one has joined.
    """
    due = deque(job_ids if state.nodes else ())
    while due:
        job_id = due.popleft()
        pending = state.pending.get(job_id)
        if pending is not None:
            due.extend(_verdict(state, job_id, pending, turn))


def _verdict(state: State, job_id: str, pending: Pending, turn: Turn[State]) -> list[str]:
    """Reject the job, hold it back or let it go.

    Whether it fits is judged when it arrives, so that nothing waits in vain, and by the cluster of then when it is let
    go.

    Returns:
        The jobs for which that changes something.
    """
    fit = judge(pending.spec, state.sizes_for(pending.spec), state.limit_of(pending.spec))
    touched: list[str] = []
    if isinstance(fit, NeverFits):
        touched = turn.emit(JobRejected(job_id=job_id, reason=fit.reason))
    elif pending.cancelled:
        touched = turn.emit(JobAdmitted(job_id=job_id, reason=fit))
    elif pending.broken:
        touched = turn.emit(JobRejected(job_id=job_id, reason=never_met(pending)))
    elif pending.missing:
        turn.emit(JobHeldBack(job_id=job_id, reason=not_met(pending)))
    elif named := {name: state.quarantined[name] for name in pending.spec.data if name in state.quarantined}:
        turn.emit(JobHeldBack(job_id=job_id, reason=quarantined(named)))
    elif (group := state.group_of(pending)) is None or not group.is_full:
        order_trial(state, job_id, pending.spec, turn)
        touched = turn.emit(JobAdmitted(job_id=job_id, reason=fit))
    elif not pending.paused:
        turn.emit(JobHeldBack(job_id=job_id, reason=array_limit(pending, group)))
    return touched
