"""Suspended jobs in the order of the queue: when they go on, and what is kept for those that are gangs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter

from libs.contracts.placement import ReservedPart
from libs.contracts.reasons import Reason
from services.placement.core.cell import Cell
from services.placement.core.cluster.gangs import Collection
from services.placement.core.cluster.servers import Servers
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.suspending.domains import takes_part
from services.placement.core.lifecycle.suspending.returning import may_return, type_of


def waiting_to_return(cell: Cell) -> list[Job]:
    """The suspended jobs that would go on if they had GPUs, in the order of the queue."""
    suspended = (cell.jobs[job_id] for job_id in cell.suspended)
    return sorted((job for job in suspended if takes_part(job)), key=attrgetter("order"))


def in_order_of_queue(queued: Iterable[Job], suspended: Iterable[Job]) -> Iterator[Job]:
    """Both in one order; each is in that order already. No queued job is asked for before it is its turn."""
    returning = iter(suspended)
    following = next(returning, None)
    for job in queued:
        while following is not None and following.order < job.order:
            yield following
            following = next(returning, None)
        yield job
    if following is not None:
        yield following
        yield from returning


def where_it_was(cell: Cell, job: Job, left: Servers) -> Collection | None:
    """What is to be kept for a suspended gang; None when servers have not as much left for it.

    Args:
        cell: says whether servers give tasks back the very GPUs that they had.
        job: with a gang.
        left: what it may have of the servers.
    """
    servers = {node.node_id: node for node in left.nodes()}
    parts = []
    for task in job.gang:
        node = cell.nodes[task.node_id]
        gpu_type = type_of(node, task)
        there = servers.get(task.node_id)
        if there is None or not may_return(node, task):
            return None
        # The first free GPUs of a server are those that are kept. Where the job needs the very GPUs that it had, so
        # many are kept that these are among them.
        last = max(task.gpu_indices)
        gpus = len(task.gpu_indices) if node.remaps else sum(index <= last for index in node.healthy[gpu_type])
        if there.capacity(gpu_type) < gpus:
            return None
        parts.append(ReservedPart(node_id=task.node_id, gpus=gpus, kept=there.free(gpu_type)[:gpus]))
    return Collection(gpu_type=type_of(cell.nodes[job.gang[0].node_id], job.gang[0]), parts=parts)


def why_back(job: Job) -> Reason:
    """Why the job goes on."""
    where = ", ".join(task.node_id for task in job.gang)
    message = f"goes on on {where}, where its memory is parked and GPUs are free"
    return Reason(code="GpusBecameFree", message=message, numbers={"gpus": job.width})
