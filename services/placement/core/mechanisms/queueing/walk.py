"""The queue policies' pass over the queue: who is placed now, and what the others are told."""

from __future__ import annotations

from collections.abc import Iterator

from libs.contracts.placement import GangReleased, GangReserved
from libs.contracts.reasons import Number, Reason
from libs.kernel.machine import Turn
from libs.policies.queueing.policy import QueuePolicy
from services.placement.core.cluster import gangs
from services.placement.core.cluster.servers import Listed, Servers
from services.placement.core.jobs import Job
from services.placement.core.lifecycle import waiting
from services.placement.core.lifecycle.hearing import Listener
from services.placement.core.lifecycle.placing import place
from services.placement.core.lifecycle.queue import HeadsInOrder
from services.placement.core.lifecycle.table import machine
from services.placement.core.state import Reservation, State


def walk(state: State, policy: QueuePolicy, turn: Turn[State]) -> None:
    """Place every queued job that the policy lets start now; tell the others why they wait."""
    _drop_stale_reservation(state, turn)
    first_refused = True
    for job in HeadsInOrder(state):
        servers = _open_servers(state, job)
        fit = gangs.best_fit(job.spec.gpus, servers)
        if fit is not None and _accepts(state, job, fit, turn.now_s):
            _place(state, job, fit, turn)
            continue
        waiting.tell_why(state, job, servers, fit, turn)
        if first_refused and policy.reserves:
            _reserve_if_due(state, job, turn)
        first_refused = False
        if not policy.later_jobs_may_pass:
            break


def _open_servers(state: State, job: Job) -> Servers:
    """Servers on which this job may be placed: usable, and not reserved for a job that goes before it."""
    holder = _holder(state)
    if state.reservation is None or holder is None or holder.order >= job.order:
        return state.servers()
    return state.servers(closed=state.reservation.node_ids)


def _holder(state: State) -> Job | None:
    """The job that nodes are reserved for."""
    return state.jobs[state.reservation.job_id] if state.reservation is not None else None


def _accepts(state: State, job: Job, fit: gangs.Fit, now_s: float) -> bool:
    """Whether the place is good enough: the fewest servers possible, or the job has waited for better."""
    if fit.nodes == 1 or now_s >= job.queued_since_s + state.locality_relax_s:
        return True
    ideal = gangs.fewest_servers(job.spec.gpus, state.servers())
    return ideal is None or fit.nodes <= ideal


def moments(state: State, policy: QueuePolicy) -> Iterator[float]:
    """When a gang accepts more servers, and when it has waited long enough for a reservation."""
    for orders in state.queue.values():
        job = state.jobs[orders[0][2]]
        if job.spec.gpus.count > 1:
            yield job.queued_since_s + state.locality_relax_s
            if policy.reserves:
                yield job.queued_since_s + state.reserve_after_s


def _place(state: State, job: Job, fit: gangs.Fit, turn: Turn[State]) -> None:
    if state.reservation is not None and state.reservation.job_id == job.job_id:
        turn.emit(_released(job, Reason(code="Placed", message="the gang starts")))
    place(state, job, fit.gang, _why_here(job, fit, turn.now_s), turn)


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


def _reserve_if_due(state: State, job: Job, turn: Turn[State]) -> None:
    """Reserve nodes for the first gang that does not fit, once it has waited long enough.

    A job on one GPU needs none: it is the first to be offered every GPU that becomes free.
    """
    holder = _holder(state)
    if job.spec.gpus.count == 1 or (holder is not None and holder.order <= job.order):
        return
    if turn.now_s < job.queued_since_s + state.reserve_after_s:
        return
    chosen = gangs.nodes_to_reserve(job.spec.gpus, state.servers())
    if not chosen:
        return
    if holder is not None:
        turn.emit(_released(holder, Reason(code="Outranked", message=f"{job.job_id} goes first")))
    held = sum(len(node.free(t)) for node in chosen for t in gangs.accepted_types(job.spec.gpus, Listed([node])))
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


def drop_reservation(state: State, turn: Turn[State]) -> None:
    """The policy in force does not reserve."""
    holder = _holder(state)
    if holder is not None:
        turn.emit(_released(holder, Reason(code="PolicyChanged", message=f"{state.policy} reserves nothing")))


class Reservations(Listener):
    """When a job leaves the queue otherwise than by being placed, others may use what was kept for it."""

    def unqueued(self, state: State, job: Job, code: str, turn: Turn[State]) -> None:
        if state.reservation is not None and state.reservation.job_id == job.job_id:
            turn.emit(_released(job, Reason(code=code, message="the gang does not wait any more")))


def _released(job: Job, reason: Reason) -> GangReleased:
    return GangReleased(job_id=job.job_id, attempt=job.attempt, reason=reason)


@machine.evolves(GangReserved)
def gang_reserved(state: State, event: GangReserved, now_s: float) -> None:
    state.reservation = Reservation(job_id=event.job_id, node_ids=event.node_ids)


@machine.evolves(GangReleased)
def gang_released(state: State, event: GangReleased, now_s: float) -> None:
    state.reservation = None
