"""The GPUs of the cell, as far as something can be granted of them, and where granted jobs have theirs."""

from __future__ import annotations

from libs.contracts.agent import GpuRecovered, GpuUnhealthy, NodeJoined, NodeLeaving, NodeLeft
from libs.contracts.gateway import NodeDrainRequested, NodeUndrainRequested
from libs.contracts.introspection import NodeLost
from libs.contracts.placement import NodeCordoned, NodeReturned
from services.quota.core.nouns import Claim, Node
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
    )


@machine.evolves(NodeLost, NodeLeft, NodeLeaving)
def gone(state: State, event: NodeLost | NodeLeft | NodeLeaving, now_s: float) -> None:
    """Unless the agent has started anew since: the report is about its former life."""
    node = state.nodes.get(event.node_id)
    if node is not None and event.incarnation >= node.incarnation:
        node.present = False


@machine.evolves(NodeDrainRequested, NodeUndrainRequested)
def drained(state: State, event: NodeDrainRequested | NodeUndrainRequested, now_s: float) -> None:
    if event.node_id in state.nodes:
        state.nodes[event.node_id].draining = isinstance(event, NodeDrainRequested)


@machine.evolves(GpuUnhealthy, GpuRecovered)
def health_changed(state: State, event: GpuUnhealthy | GpuRecovered, now_s: float) -> None:
    node = state.nodes.get(event.node_id)
    if node is None:
        return
    if isinstance(event, GpuUnhealthy):
        node.sick[event.index] = None
    else:
        node.sick.pop(event.index, None)


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


def gpu_types(state: State) -> list[str]:
    """The types that a node of the cell has or had, in order of first sight."""
    return list(dict.fromkeys(gpu_type for node in state.nodes.values() for gpu_type in node.gpu_types))


def capacity(state: State) -> dict[str, int]:
    """{GPU type: GPUs that jobs may have}: healthy and not cordoned, on nodes that are there and take new jobs."""
    found = dict.fromkeys(gpu_types(state), 0)
    for node in state.nodes.values():
        if node.takes_jobs:
            for index, gpu_type in enumerate(node.gpu_types):
                found[gpu_type] += node.can_use(index)
    return found


def held(state: State, claim: Claim) -> int:
    """How many of the GPUs that `capacity` counts the granted job has, or may have.

    GPUs that it still has on a node which has gone or is drained are none of them, nor are those that are not healthy
    or cordoned: a cordon takes as much from what there is as from what is granted, and so nothing from any other job.
    An elastic job that has shrunk, or grown, counts with what it was granted: it may have that back, and keeps no more
    when others need it.
    """
    lost = (not _is_usable(state, node_id, index) for node_id, indices in claim.gang.items() for index in indices)
    return max(0, claim.gpus - sum(lost))


def type_at(state: State, node_id: str, index: int) -> str:
    """The type of a GPU; empty: it is not known."""
    node = state.nodes.get(node_id)
    return node.gpu_types[index] if node is not None and index < len(node.gpu_types) else ""


def _is_usable(state: State, node_id: str, index: int) -> bool:
    node = state.nodes.get(node_id)
    return node is not None and node.can_use(index)
