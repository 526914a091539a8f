"""Nodes come, go, are lost, drained, and their GPUs fail."""

from __future__ import annotations

from libs.contracts.agent import GpuRecovered, GpuUnhealthy, NodeJoined, NodeLeaving, NodeLeft
from libs.contracts.gateway import NodeDrainRequested, NodeUndrainRequested
from libs.contracts.introspection import NodeLost
from libs.contracts.reasons import Reason
from libs.kernel.machine import Turn
from services.placement.core.cell import Cell
from services.placement.core.cluster.nodes import Gpu, Node
from services.placement.core.jobs import Job, Phase, TaskExit
from services.placement.core.lifecycle import avoiding, cordoning, strays
from services.placement.core.lifecycle.attempts import end_attempt, stop_stale
from services.placement.core.lifecycle.current import expects
from services.placement.core.lifecycle.moving.handing_over import give_up
from services.placement.core.lifecycle.placing import preempt, preempted
from services.placement.core.lifecycle.table import Look, machine, reacts

LOST = TaskExit(exit_code=None, signal=None, outcome="lost")


@machine.evolves(NodeJoined)
def node_joined(cell: Cell, event: NodeJoined, now_s: float) -> None:
    """Holders and drain survive a restart of the agent, as its tasks do.

    A task that was launched but has not reported its start may still be on its way to the agent: only one
    that had started and is not there any more is lost. A GPU that has vanished stays on the books, unhealthy.
    """
    known = cell.nodes.get(event.node_id)
    gpus = [Gpu(gpu_type=info.gpu_type, memory_bytes=info.memory_bytes) for info in event.gpus]
    for index, old in enumerate(known.gpus if known is not None else ()):
        if index < len(gpus):
            gpus[index].holders, gpus[index].guests = old.holders, old.guests
        else:
            gpus.append(Gpu(gpu_type=old.gpu_type, holders=old.holders, guests=old.guests))
    healthy: dict[str, list[int]] = {}
    for index, info in enumerate(event.gpus):
        healthy.setdefault(info.gpu_type, []).append(index)
    cell.nodes[event.node_id] = Node(
        node_id=event.node_id,
        incarnation=event.incarnation,
        address=event.address,
        rack=event.rack,
        gpus=gpus,
        healthy=healthy,
        ports=event.rendezvous_ports,
        meetings=known.meetings if known is not None else [],
        next_port=known.next_port if known is not None else event.rendezvous_ports.first,
        draining=known.draining if known is not None else False,
        remaps=event.remaps,
        state_port=event.state_port,
        cpus=event.cpus,
        memory_bytes=event.memory_bytes,
        shrunk=known is not None
        and (known.shrunk or event.cpus < known.cpus or event.memory_bytes < known.memory_bytes),
        features=event.features,
        scales_memory=event.scales_memory,
        scales_compute=event.scales_compute,
        spill_bytes=event.spill_bytes,
        avoided_by=known.avoided_by if known is not None else [],
    )
    if known is not None:
        cell.nodes[event.node_id].cordon(index for index in known.cordoned if index < len(gpus))
    cell.__dict__.pop("set_apart", None)
    cell.changed(event.node_id)
    avoiding.reconsider(cell)
    strays.settle(cell, event)
    there = [(ref.job_id, ref.attempt) for ref in event.tasks]
    for job in cell.jobs.values():
        if job.move is not None and event.node_id in job.move.started and (job.job_id, job.move.attempt) not in there:
            job.move.gone[event.node_id] = None
    for job in _active_on(cell, event.node_id):
        if event.node_id in job.tasks.started and (job.job_id, job.attempt) not in there:
            job.tasks.exits[event.node_id] = LOST


@reacts(NodeJoined)
def settle_tasks(cell: Cell, event: NodeJoined, turn: Turn[Cell]) -> Look:
    """Stop what the agent should not have; queue again what it should have and has lost."""
    for ref in event.tasks:
        if not expects(cell, event.node_id, ref.job_id, ref.attempt):
            turn.emit(stop_stale(cell, event.node_id, ref.job_id, ref.attempt))
    cordoning.ask_again(cell, event.node_id, turn)
    reason = Reason(code="TaskLost", message=f"the agent of {event.node_id} restarted and its task is gone")
    _requeue_losers(cell, event.node_id, reason, turn)
    return Look()


@machine.evolves(NodeLeaving)
def node_leaving(cell: Cell, event: NodeLeaving, now_s: float) -> None:
    """Its tasks are still there, and end by and by."""
    _take_away(cell, event)


@reacts(NodeLeaving)
def give_jobs_back(cell: Cell, event: NodeLeaving, turn: Turn[Cell]) -> Look | None:
    """Preempted before their tasks end: an end that the agent has brought about must not count as a failure.

    A job keeps its reason when its attempt is being ended already.
    """
    node = cell.nodes.get(event.node_id)
    if node is None or node.present:
        return None
    reason = Reason(code="NodeLeaving", message=f"the agent of node {event.node_id} is being stopped")
    _give_up_moves_to(cell, event.node_id, reason, turn)
    for job in _active_on(cell, event.node_id):
        if not job.stopping:
            preempt(cell, preempted(job, reason), turn)
    return Look()


@machine.evolves(NodeLost, NodeLeft)
def node_gone(cell: Cell, event: NodeLost | NodeLeft, now_s: float) -> None:
    if _take_away(cell, event):
        for job in _active_on(cell, event.node_id):
            job.tasks.exits[event.node_id] = LOST
            if isinstance(event, NodeLost):  # one that has left has ended its tasks before
                strays.lose(job, event.node_id)


@reacts(NodeLost, NodeLeft)
def lose_tasks(cell: Cell, event: NodeLost | NodeLeft, turn: Turn[Cell]) -> Look | None:
    node = cell.nodes.get(event.node_id)
    if node is None or node.present:
        return None
    silent = f"silent for {event.silent_s:.0f} s" if isinstance(event, NodeLost) else "has left"
    reason = Reason(code=type(event).__name__, message=f"node {event.node_id} {silent}")
    lost = [(job.job_id, job.attempt) for job in _losers(cell, event.node_id)]
    _requeue_losers(cell, event.node_id, reason, turn)
    if isinstance(event, NodeLost):
        # Behind the orders that the agent has not read yet: it would carry them out when it is back, and launch an
        # attempt that is over.
        for job_id, attempt in lost:
            turn.emit(stop_stale(cell, event.node_id, job_id, attempt))
    return Look()


@machine.evolves(NodeDrainRequested)
def drain_requested(cell: Cell, event: NodeDrainRequested, now_s: float) -> None:
    if event.node_id in cell.nodes:
        cell.nodes[event.node_id].draining = True
        cell.changed(event.node_id)
        avoiding.reconsider(cell)


@machine.evolves(NodeUndrainRequested)
def undrain_requested(cell: Cell, event: NodeUndrainRequested, now_s: float) -> None:
    if event.node_id in cell.nodes:
        cell.nodes[event.node_id].draining = False
        cell.changed(event.node_id)
        avoiding.reconsider(cell)


@machine.evolves(GpuUnhealthy)
def gpu_unhealthy(cell: Cell, event: GpuUnhealthy, now_s: float) -> None:
    _set_health(cell, event.node_id, event.index, healthy=False)


@machine.evolves(GpuRecovered)
def gpu_recovered(cell: Cell, event: GpuRecovered, now_s: float) -> None:
    _set_health(cell, event.node_id, event.index, healthy=True)


@reacts(NodeDrainRequested, NodeUndrainRequested, GpuUnhealthy, GpuRecovered)
def look_again(
    cell: Cell,
    event: NodeDrainRequested | NodeUndrainRequested | GpuUnhealthy | GpuRecovered,
    turn: Turn[Cell],
) -> Look:
    if isinstance(event, NodeUndrainRequested):
        cordoning.give_back(cell, event, turn)
    return Look()


def _take_away(cell: Cell, event: NodeLost | NodeLeft | NodeLeaving) -> bool:
    """No work for the node any more, unless its agent has started anew since: the report is about its former life.

    Returns:
        Whether it is about the present one.
    """
    node = cell.nodes.get(event.node_id)
    if node is None or event.incarnation < node.incarnation:
        return False
    node.present = False
    cell.changed(event.node_id)
    avoiding.reconsider(cell)
    for job in cell.jobs.values():
        if job.move is not None and any(task.node_id == event.node_id for task in job.move.gang):
            job.move.gone[event.node_id] = None
    return True


def _active_on(cell: Cell, node_id: str) -> list[Job]:
    """Jobs with a task on the node that has not ended."""
    return [j for j in cell.jobs.values() if j.phase is Phase.ACTIVE and node_id in j.live_nodes()]


def _requeue_losers(cell: Cell, node_id: str, reason: Reason, turn: Turn[Cell]) -> None:
    """Jobs that have lost their task on the node: the rest of the gang is stopped, the job queued again.

    A job that was about to move there stays where it is, if it may.
    """
    _give_up_moves_to(cell, node_id, reason, turn)
    for job in _losers(cell, node_id):
        if job.leaving is None and job.cancellation is None:
            preempt(cell, preempted(job, reason), turn)
        if not job.live_nodes():
            end_attempt(cell, job, turn)


def _losers(cell: Cell, node_id: str) -> list[Job]:
    """Jobs with a gang on GPUs that have lost their task on the node."""
    return [j for j in cell.jobs.values() if j.phase is Phase.ACTIVE and j.tasks.exits.get(node_id) == LOST]


def _give_up_moves_to(cell: Cell, node_id: str, reason: Reason, turn: Turn[Cell]) -> None:
    for job in [job for job in cell.jobs.values() if job.move is not None and node_id in job.move.gone]:
        give_up(cell, job, reason, turn)


def _set_health(cell: Cell, node_id: str, index: int, *, healthy: bool) -> None:
    node = cell.nodes.get(node_id)
    if node is not None and index < len(node.gpus):
        node.set_health(index, healthy=healthy)
        cell.changed(node_id)
        avoiding.reconsider(cell)
