"""The GPUs of the cell, as far as something can be granted of them, and where granted jobs have theirs."""

from __future__ import annotations

from libs.contracts.agent import GpuRecovered, GpuUnhealthy, NodeJoined, NodeLeaving, NodeLeft
from libs.contracts.features import is_in_pool
from libs.contracts.gateway import NodeDrainRequested, NodeUndrainRequested
from libs.contracts.introspection import NodeLost
from libs.contracts.placement import NodeCordoned, NodeReturned
from services.quota.core.nouns import Node
from services.quota.core.state import State
from services.quota.core.table import machine


@machine.evolves(NodeJoined)
def joined(state: State, event: NodeJoined, now_s: float) -> None:
    """A drain and a cordon survive a restart of the agent, as its tasks do."""
    known = state.nodes.get(event.node_id)
    state.nodes[event.node_id] = Node(
        incarnation=event.incarnation,
        gpu_types=[gpu.gpu_type for gpu in event.gpus],
        draining=known is not None and known.draining,
        cordoned=known.cordoned if known is not None else {},
        in_pool=is_in_pool(event.features),
    )
    state.nodes_changed()


@machine.evolves(NodeLost, NodeLeft, NodeLeaving)
def gone(state: State, event: NodeLost | NodeLeft | NodeLeaving, now_s: float) -> None:
    """Unless the agent has started anew since: the report is about its former life."""
    node = state.nodes.get(event.node_id)
    if node is not None and event.incarnation >= node.incarnation:
        node.present = False
        state.nodes_changed()


@machine.evolves(NodeDrainRequested, NodeUndrainRequested)
def drained(state: State, event: NodeDrainRequested | NodeUndrainRequested, now_s: float) -> None:
    if event.node_id in state.nodes:
        state.nodes[event.node_id].draining = isinstance(event, NodeDrainRequested)
        state.nodes_changed()


@machine.evolves(GpuUnhealthy, GpuRecovered)
def health_changed(state: State, event: GpuUnhealthy | GpuRecovered, now_s: float) -> None:
    node = state.nodes.get(event.node_id)
    if node is None:
        return
    if isinstance(event, GpuUnhealthy):
        node.sick[event.index] = None
    else:
        node.sick.pop(event.index, None)
    state.nodes_changed()


@machine.evolves(NodeCordoned, NodeReturned)
def cordoned(state: State, event: NodeCordoned | NodeReturned, now_s: float) -> None:
    """The GPUs are suspected, or may be used again; jobs that hold them go on in either case."""
    node = state.nodes.get(event.node_id)
    if node is None:
        return
    for index in event.gpu_indices:
        if isinstance(event, NodeCordoned):
            node.cordoned[index] = None
        else:
            node.cordoned.pop(index, None)
    state.nodes_changed()


def gpu_types(state: State) -> list[str]:
    """The types that a node of the cell has or had, in order of first sight."""
    return list(state.holdings.capacity)


def type_at(state: State, node_id: str, index: int) -> str:
    """The type of a GPU; empty: it is not known."""
    node = state.nodes.get(node_id)
    return node.gpu_types[index] if node is not None and index < len(node.gpu_types) else ""
