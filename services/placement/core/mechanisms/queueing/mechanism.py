"""The pass over the queue: which jobs are placed now, and what the others are told."""

from __future__ import annotations

from collections.abc import Iterator

from libs.contracts.placement import GangReleased, GangReserved
from libs.contracts.reasons import Number, Reason
from libs.kernel.machine import Turn
from libs.policies.policy import Kind
from libs.policies.queueing.table import QUEUE_POLICIES
from services.placement.core.cell import Cell, Reservation
from services.placement.core.cluster import gangs
from services.placement.core.cluster.servers import Listed, Servers
from services.placement.core.jobs import Job, Phase
from services.placement.core.lifecycle import waiting
from services.placement.core.lifecycle.placing import place, tell
from services.placement.core.lifecycle.queue import HeadsInOrder, ahead_of
from services.placement.core.lifecycle.table import machine
from services.placement.core.mechanism import Mechanism


class QueueingMechanism(Mechanism):
    """A job that has been given GPUs keeps them to its end; the others are placed in order, where they fit."""

    kind = Kind.ORDER

    def step(self, cell: Cell, turn: Turn[Cell]) -> None:
        """Place every queued job that the policy lets start now; tell the others why they wait."""
        policy = QUEUE_POLICIES[cell.policy]
        _drop_stale_reservation(cell, turn)
        first_refused = True
        for job in HeadsInOrder(cell):
            servers = _open_servers(cell, job)
            fit = gangs.best_fit(job.spec.gpus, servers)
            if fit is not None and _accepts(cell, job, fit, turn.now_s):
                _place(cell, job, fit, turn)
                continue
            waiting.tell_why(cell, job, servers, fit, turn)
            if first_refused and policy.reserves:
                _reserve_if_due(cell, job, turn)
            first_refused = False
            if not policy.later_jobs_may_pass:
                break

    def moments(self, cell: Cell) -> Iterator[float]:
        """When a gang accepts more servers, and when it has waited long enough for a reservation."""
        policy = QUEUE_POLICIES[cell.policy]
        for orders in cell.queue.values():
            job = cell.jobs[orders[0][2]]
            if job.spec.gpus.count > 1:
                yield job.queued_since_s + cell.settings.locality_relax_s
                if policy.reserves:
                    yield job.queued_since_s + cell.settings.reserve_after_s

    def newcomer(self, cell: Cell, job: Job, turn: Turn[Cell]) -> None:
        """A job that was not looked at, because it is behind others of its shape, is told so."""
        if job.phase is Phase.QUEUED and not job.held and not job.wait_code:
            tell(cell, job, waiting.behind_others(job, ahead_of(cell, job)), turn)

    def wind_down(self, cell: Cell, in_force: Mechanism, turn: Turn[Cell]) -> None:
        """Reserved nodes, which nothing else would release."""
        holder = _holder(cell)
        if holder is not None:
            turn.emit(_released(holder, Reason(code="PolicyChanged", message=f"{cell.policy} reserves nothing")))

    def unqueued(self, cell: Cell, job: Job, code: str, turn: Turn[Cell]) -> None:
        """Others may use what was kept for the job."""
        if cell.reservation is not None and cell.reservation.job_id == job.job_id:
            turn.emit(_released(job, Reason(code=code, message="the gang does not wait any more")))


def _open_servers(cell: Cell, job: Job) -> Servers:
    """Servers on which this job may be placed: usable, and not reserved for a job that goes before it."""
    holder = _holder(cell)
    if cell.reservation is None or holder is None or holder.order >= job.order:
        return cell.servers()
    return cell.servers(closed=cell.reservation.node_ids)


def _holder(cell: Cell) -> Job | None:
    """The job that nodes are reserved for."""
    return cell.jobs[cell.reservation.job_id] if cell.reservation is not None else None


def _accepts(cell: Cell, job: Job, fit: gangs.Fit, now_s: float) -> bool:
    """Whether the place is good enough: the fewest servers possible, or the job has waited for better."""
    if fit.nodes == 1 or now_s >= job.queued_since_s + cell.settings.locality_relax_s:
        return True
    ideal = gangs.fewest_servers(job.spec.gpus, cell.servers())
    return ideal is None or fit.nodes <= ideal


def _place(cell: Cell, job: Job, fit: gangs.Fit, turn: Turn[Cell]) -> None:
    if cell.reservation is not None and cell.reservation.job_id == job.job_id:
        turn.emit(_released(job, Reason(code="Placed", message="the gang starts")))
    place(cell, job, fit.gang, _why_here(job, fit, turn.now_s), turn)


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


def _reserve_if_due(cell: Cell, job: Job, turn: Turn[Cell]) -> None:
    """Reserve nodes for the first gang that does not fit, once it has waited long enough.

    A job on one GPU needs none: it is the first to be offered every GPU that becomes free.
    """
    holder = _holder(cell)
    if job.spec.gpus.count == 1 or (holder is not None and holder.order <= job.order):
        return
    if turn.now_s < job.queued_since_s + cell.settings.reserve_after_s:
        return
    chosen = gangs.nodes_to_reserve(job.spec.gpus, cell.servers())
    if not chosen:
        return
    if holder is not None:
        turn.emit(_released(holder, Reason(code="Outranked", message=f"{job.job_id} goes first")))
    held = sum(len(node.free(t)) for node in chosen for t in gangs.accepted_types(job.spec.gpus, Listed([node])))
    waited_s = turn.now_s - job.queued_since_s
    reason = Reason(
        code="WaitedLongEnough",
        message=f"first in the queue and waiting for {waited_s:.0f} s: GPUs that become free there are kept for it",
        numbers={"waited_s": waited_s, "reserve_after_s": cell.settings.reserve_after_s, "gpus": job.spec.gpus.count},
    )
    node_ids = [node.node_id for node in chosen]
    turn.emit(GangReserved(job_id=job.job_id, attempt=job.attempt, node_ids=node_ids, gpus_held=held, reason=reason))


def _drop_stale_reservation(cell: Cell, turn: Turn[Cell]) -> None:
    """A reservation on a node that cannot be used any more is of no use."""
    holder = _holder(cell)
    if holder is None or cell.reservation is None:
        return
    gone = [n for n in cell.reservation.node_ids if not cell.nodes[n].usable]
    if gone:
        reason = Reason(code="NodeUnusable", message=f"{', '.join(gone)} cannot be used any more")
        turn.emit(_released(holder, reason))


def _released(job: Job, reason: Reason) -> GangReleased:
    return GangReleased(job_id=job.job_id, attempt=job.attempt, reason=reason)


@machine.evolves(GangReserved)
def gang_reserved(cell: Cell, event: GangReserved, now_s: float) -> None:
    cell.reservation = Reservation(job_id=event.job_id, node_ids=event.node_ids)


@machine.evolves(GangReleased)
def gang_released(cell: Cell, event: GangReleased, now_s: float) -> None:
    cell.reservation = None
