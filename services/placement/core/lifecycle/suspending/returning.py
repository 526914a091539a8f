"""A process cannot leave its server by being resumed: where a suspended job can go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from libs.contracts.cluster import TaskPlacement
from services.placement.core.cell import Cell
from services.placement.core.cluster.nodes import Node
from services.placement.core.jobs import Job


def place_again(nodes: Mapping[str, Node], job: Job, free: Mapping[str, Sequence[int]]) -> list[TaskPlacement] | None:
    """Where it runs: where it is or was if possible, else on other GPUs of the same type of the same servers.

    Args:
        nodes: that are there.
        job: with a gang.
        free: {server: GPUs that it may have, those first that are best given away}.

    Returns:
        None: nowhere now.
    """
    if all(index in free.get(task.node_id, ()) for task in job.gang for index in task.gpu_indices):
        return job.gang
    gang = []
    for task in job.gang:
        node = nodes.get(task.node_id)
        if node is None or not node.remaps:
            return None
        of_type = node.healthy.get(type_of(node, task), ())
        usable = [index for index in free.get(task.node_id, ()) if index in of_type]
        if len(usable) < len(task.gpu_indices):
            return None
        indices = sorted(usable[: len(task.gpu_indices)])
        gang.append(TaskPlacement(node_id=task.node_id, gpu_indices=indices, first_rank=task.first_rank))
    return gang


def can_return(nodes: Mapping[str, Node], job: Job, gang: Sequence[TaskPlacement]) -> bool:
    """Whether `gang` is such a place: every process finds its GPU."""
    if job.gang == gang:
        return True
    return [_shape(nodes, task) for task in job.gang] == [_shape(nodes, task) for task in gang] and all(
        nodes[task.node_id].remaps for task in gang
    )


def may_return(node: Node, task: TaskPlacement) -> bool:
    """Whether the server may give the task GPUs again, as soon as they are free."""
    if not node.usable:
        return False
    if node.remaps:
        return node.capacity(type_of(node, task)) >= len(task.gpu_indices)
    return node.are_healthy(task.gpu_indices)


def is_pinned(cell: Cell, job: Job) -> bool:
    """Whether the job has begun, and can go on where it is."""
    return job.lasts and job.as_asked and all(may_return(cell.nodes[task.node_id], task) for task in job.gang)


def _shape(nodes: Mapping[str, Node], task: TaskPlacement) -> tuple[str, str, int, int]:
    return task.node_id, type_of(nodes[task.node_id], task), task.first_rank, len(task.gpu_indices)


def type_of(node: Node, task: TaskPlacement) -> str:
    """The type of the GPUs that the task has, or had."""
    return node.gpus[task.gpu_indices[0]].gpu_type
