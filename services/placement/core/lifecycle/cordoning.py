"""GPUs under suspicion: nothing new is placed on them until their node's agent has tried them out."""

from __future__ import annotations

from collections.abc import Sequence

from libs.contracts.agent import NodeTested
from libs.contracts.failure_analysis import GpuSuspected, NodeSuspected
from libs.contracts.gateway import NodeUndrainRequested
from libs.contracts.placement import CheckGpus, NodeCordoned, NodeReturned
from libs.contracts.reasons import Reason
from libs.kernel.machine import Turn
from services.placement.core.cell import Cell
from services.placement.core.lifecycle import avoiding
from services.placement.core.lifecycle.table import Look, machine, reacts


@reacts(GpuSuspected, NodeSuspected)
def cordon(cell: Cell, event: GpuSuspected | NodeSuspected, turn: Turn[Cell]) -> Look | None:
    """All GPUs of a node, where it is not known which one it is."""
    node = cell.nodes.get(event.node_id)
    if node is None:
        return None
    suspected = [event.index] if isinstance(event, GpuSuspected) else range(len(node.gpus))
    indices = [index for index in suspected if index < len(node.gpus) and index not in node.cordoned]
    if not indices:
        return None
    turn.emit(NodeCordoned(node_id=event.node_id, gpu_indices=indices, reason=event.reason))
    turn.emit(_check(event.node_id, indices, event.reason))
    return Look()


@machine.evolves(NodeCordoned)
def cordoned(cell: Cell, event: NodeCordoned, now_s: float) -> None:
    cell.nodes[event.node_id].cordon(event.gpu_indices)
    cell.changed(event.node_id)
    avoiding.reconsider(cell)


def ask_again(cell: Cell, node_id: str, turn: Turn[Cell]) -> None:
    """An agent that has started anew may have forgotten the order; what has failed once is tried again, too."""
    if indices := sorted(cell.nodes[node_id].cordoned):
        why = Reason(code="AgentStarted", message=f"the agent of {node_id} has started, and GPUs of it are cordoned")
        turn.emit(_check(node_id, indices, why))


@reacts(NodeTested)
def return_what_is_well(cell: Cell, event: NodeTested, turn: Turn[Cell]) -> Look | None:
    """What has failed stays cordoned, until it passes a later test or an operator gives it back (`sanjaya undrain`)."""
    well = [index for index in event.gpu_indices if index not in event.failed]
    message = f"the self-test of {event.node_id} has passed after {event.took_s:.1f} s"
    return _return(cell, event.node_id, well, Reason(code="TestPassed", message=message), turn)


def give_back(cell: Cell, event: NodeUndrainRequested, turn: Turn[Cell]) -> None:
    """An operator wants the node to be used, whatever is suspected of it."""
    node = cell.nodes.get(event.node_id)
    if node is not None:
        why = Reason(code="OperatorSaysSo", message=f"{event.requested_by} has given it back")
        _return(cell, event.node_id, sorted(node.cordoned), why, turn)


@machine.evolves(NodeReturned)
def returned(cell: Cell, event: NodeReturned, now_s: float) -> None:
    cell.nodes[event.node_id].lift_cordon(event.gpu_indices)
    cell.changed(event.node_id)
    avoiding.reconsider(cell)


def _return(cell: Cell, node_id: str, indices: Sequence[int], why: Reason, turn: Turn[Cell]) -> Look | None:
    node = cell.nodes.get(node_id)
    back = [index for index in indices if node is not None and index in node.cordoned]
    if not back:
        return None
    turn.emit(NodeReturned(node_id=node_id, gpu_indices=back, reason=why))
    return Look()


def _check(node_id: str, indices: list[int], reason: Reason) -> CheckGpus:
    return CheckGpus(node_id=node_id, gpu_indices=indices, reason=reason)
