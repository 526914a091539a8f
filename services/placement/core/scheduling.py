"""The pass over the queue: who is placed now, and what the others are told."""

from __future__ import annotations

from libs.contracts.placement import GangReleased, GangReserved, JobPlaced, JobQueued
from libs.contracts.reasons import Number, Reason
from libs.contracts.runtime import TimerFired
from libs.kernel.machine import Turn
from services.placement.core import gangs, waiting
from services.placement.core.orders import launch_orders
from services.placement.core.policies import POLICIES
from services.placement.core.queue import HeadsInOrder, ahead_of, dequeue, enqueue
from services.placement.core.state import Job, Node, Phase, Reservation, State
from services.placement.core.table import machine


@machine.decides(TimerFired)
def time_has_passed(state: State, event: TimerFired, turn: Turn[State]) -> None:
    """A gang may accept more servers now, or has waited long enough for a reservation."""
    schedule(state, turn)


def next_wakeup(state: State) -> float | None:
    """When the passing of time alone may change a decision."""
    return state.wakeup_s


def schedule(state: State, turn: Turn[State]) -> None:
    """Place every queued job that the policy lets start now; tell the others why they wait."""
    policy = POLICIES[state.policy]
    state.wakeup_s = None
    _drop_stale_reservation(state, turn)
    first_refused = True
    for job in HeadsInOrder(state):
        nodes = _open_nodes(state, job)
        fit = gangs.best_fit(job.spec.gpus, nodes)
        if fit is not None and _accepts(state, job, fit, turn.now_s):
            _place(state, job, fit, turn)
            continue
        _tell(state, job, waiting.reason_to_wait(state, job, nodes, fit, turn.now_s), turn)
        if first_refused and policy.reserves:
            _reserve_if_due(state, job, turn)
        first_refused = False
        if not policy.later_jobs_may_pass:
            break


def tell_newcomer(state: State, job: Job, turn: Turn[State]) -> None:
    """After a pass: a job that was not looked at, because it is behind others, is told so."""
    if job.phase is Phase.QUEUED and not job.held and not job.wait_code:
        _tell(state, job, waiting.behind_others(job, ahead_of(state, job)), turn)


def _open_nodes(state: State, job: Job) -> list[Node]:
    """Nodes on which this job may be placed: usable, and not reserved for a job that goes before it."""
    holder = _holder(state)
    closed = state.reservation.node_ids if state.reservation and holder and holder.order < job.order else ()
    return [node for node in state.nodes.values() if node.usable and node.node_id not in closed]


def _holder(state: State) -> Job | None:
    """The job that nodes are reserved for."""
    return state.jobs[state.reservation.job_id] if state.reservation is not None else None


def _accepts(state: State, job: Job, fit: gangs.Fit, now_s: float) -> bool:
    """Whether the place is good enough: the fewest servers possible, or the job has waited for better."""
    relaxes_at_s = job.queued_since_s + state.locality_relax_s
    if fit.nodes == 1 or now_s >= relaxes_at_s:
        return True
    usable = [node for node in state.nodes.values() if node.usable]
    ideal = gangs.fewest_servers(job.spec.gpus, usable)
    if ideal is None or fit.nodes <= ideal:
        return True
    _wake_at(state, relaxes_at_s)
    return False


def _place(state: State, job: Job, fit: gangs.Fit, turn: Turn[State]) -> None:
    if state.reservation is not None and state.reservation.job_id == job.job_id:
        turn.emit(_released(job, Reason(code="Placed", message="the gang starts")))
    orders = launch_orders(state, job, fit.gang, job.attempt)
    turn.emit(JobPlaced(job_id=job.job_id, attempt=job.attempt, gang=fit.gang, reason=_why_here(job, fit, turn.now_s)))
    for order in orders:
        turn.emit(order)


def _why_here(job: Job, fit: gangs.Fit, now_s: float) -> Reason:
    where = ", ".join(task.node_id for task in fit.gang)
    numbers: dict[str, Number] = {
        "gpus": job.spec.gpus.count,
        "nodes": fit.nodes,
        "racks": fit.racks,
        "waited_s": now_s - job.queued_since_s,
    }
    return Reason(
        code="FewestServers",
        message=f"{job.spec.gpus.count} free {fit.gpu_type} on {where}: the fewest servers that can take the gang",
        numbers=numbers,
    )


def _tell(state: State, job: Job, reason: Reason, turn: Turn[State]) -> None:
    """Once per cause: a reason whose code has not changed is not repeated."""
    if reason.code != job.wait_code:
        turn.emit(JobQueued(job_id=job.job_id, attempt=job.attempt, reason=reason))


def _reserve_if_due(state: State, job: Job, turn: Turn[State]) -> None:
    """Reserve nodes for the first gang that does not fit, once it has waited long enough.

    A job on one GPU needs none: it is the first to be offered every GPU that becomes free.
    """
    holder = _holder(state)
    if job.spec.gpus.count == 1 or (holder is not None and holder.order <= job.order):
        return
    due_s = job.queued_since_s + state.reserve_after_s
    if turn.now_s < due_s:
        _wake_at(state, due_s)
        return
    usable = [node for node in state.nodes.values() if node.usable]
    chosen = gangs.nodes_to_reserve(job.spec.gpus, usable)
    if not chosen:
        return
    if holder is not None:
        turn.emit(_released(holder, Reason(code="Outranked", message=f"{job.job_id} goes first")))
    held = sum(len(node.free(t)) for node in chosen for t in gangs.accepted_types(job.spec.gpus, [node]))
    waited_s = turn.now_s - job.queued_since_s
    reason = Reason(
        code="WaitedLongEnough",
        message=f"first in the queue and waiting for {waited_s:.0f} s: GPUs that become free there are kept for it",
        numbers={"waited_s": waited_s, "reserve_after_s": state.reserve_after_s, "gpus": job.spec.gpus.count},
    )
    node_ids = [node.node_id for node in chosen]
    turn.emit(GangReserved(job_id=job.job_id, attempt=job.attempt, node_ids=node_ids, gpus_held=held, reason=reason))


def _drop_stale_reservation(state: State, turn: Turn[State]) -> None:
    """A reservation on a node that cannot be used any more helps nobody."""
    holder = _holder(state)
    if holder is None or state.reservation is None:
        return
    gone = [n for n in state.reservation.node_ids if not state.nodes[n].usable]
    if gone:
        reason = Reason(code="NodeUnusable", message=f"{', '.join(gone)} cannot be used any more")
        turn.emit(_released(holder, reason))


def release_reservation_of(state: State, job: Job, code: str, turn: Turn[State]) -> None:
    """The job leaves the queue otherwise than by being placed: others may use what was kept for it."""
    if state.reservation is not None and state.reservation.job_id == job.job_id:
        turn.emit(_released(job, Reason(code=code, message="the gang does not wait any more")))


def _released(job: Job, reason: Reason) -> GangReleased:
    return GangReleased(job_id=job.job_id, attempt=job.attempt, reason=reason)


def _wake_at(state: State, time_s: float) -> None:
    state.wakeup_s = time_s if state.wakeup_s is None else min(state.wakeup_s, time_s)


@machine.evolves(JobQueued)
def job_queued(state: State, event: JobQueued, now_s: float) -> None:
    """A higher attempt number says that the job has left its GPUs and waits again."""
    job = state.jobs[event.job_id]
    if event.attempt > job.attempt:
        clear_attempt(state, job)
        job.phase, job.attempt, job.queued_since_s = Phase.QUEUED, event.attempt, now_s
        if not job.held:
            enqueue(state, job)
    job.wait_code = event.reason.code


@machine.evolves(GangReserved)
def gang_reserved(state: State, event: GangReserved, now_s: float) -> None:
    state.reservation = Reservation(job_id=event.job_id, node_ids=event.node_ids)


@machine.evolves(GangReleased)
def gang_released(state: State, event: GangReleased, now_s: float) -> None:
    state.reservation = None


@machine.evolves(JobPlaced)
def job_placed(state: State, event: JobPlaced, now_s: float) -> None:
    job = state.jobs[event.job_id]
    dequeue(state, job)
    job.phase, job.gang, job.wait_code = Phase.ACTIVE, event.gang, ""
    for task in event.gang:
        node = state.nodes[task.node_id]
        for index in task.gpu_indices:
            node.gpus[index].holder = job.job_id
    if len(event.gang) > 1:
        first = state.nodes[event.gang[0].node_id]
        first.next_port = first.next_port + 1 if first.next_port < first.ports.last else first.ports.first


def clear_attempt(state: State, job: Job) -> None:
    """The job's GPUs are free again and nothing of the attempt is left."""
    for task in job.gang:
        node = state.nodes[task.node_id]
        for index in task.gpu_indices:
            if index < len(node.gpus) and node.gpus[index].holder == job.job_id:
                node.gpus[index].holder = ""
    job.gang, job.started, job.exits = [], [], {}
    job.leaving, job.stopping, job.wait_code = None, False, ""
