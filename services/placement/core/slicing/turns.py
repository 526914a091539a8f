"""Whose turn it is: the jobs that have had least, in order of priority, as many as fit side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from libs.contracts.cluster import TaskPlacement
from services.placement.core import gangs
from services.placement.core.slicing.domains import Domain, takes_part
from services.placement.core.slicing.service_time import had
from services.placement.core.state import Job, Node

FreeGpus = dict[str, list[int]]
"""{node id: indices}, those that are best given away first."""


@dataclass(frozen=True)
class Seat:
    """A job's place in the coming slice."""

    job: Job
    gang: list[TaskPlacement]


def choose(domain: Domain, newcomers: Sequence[Job], now_s: float, *, anew: bool) -> list[Seat]:
    """Who runs from now on, and where.

    Args:
        newcomers: queued jobs that may begin here, in queue order.
        anew: the slice is over, and everybody competes; else who runs makes room for a higher priority alone.

    Returns:
        Seats of running, suspended and new jobs. Higher priority goes first; among equals newcomers, because their
        users wait for the first sign of life (they jump the line once, and `max_height` bounds how many there are),
        then who has had least (weighted round-robin, Gandiva section 4.2), then who waits, then in order of arrival.
        A job that does not fit is passed over: having had least, it is first again until it does.
    """
    takers = [job for job in domain.residents if takes_part(job)]

    def order(job: Job) -> tuple[int, bool, bool, float, bool, int]:
        stays = not anew and runs(job)
        return (-job.priority, not stays, bool(job.gang), had(job, now_s), runs(job), job.seq)

    ranked = sorted([*takers, *newcomers], key=order)
    free = _free(domain, ranked)
    seats = []
    for job in ranked:
        gang = _place_of(domain, job, free)
        if gang is not None:
            seats.append(Seat(job, gang))
            for task in gang:
                free[task.node_id] = [i for i in free[task.node_id] if i not in task.gpu_indices]
    return seats


def runs(job: Job) -> bool:
    """Whether it holds GPUs."""
    return bool(job.gang) and not job.suspended


def _free(domain: Domain, ranked: list[Job]) -> FreeGpus:
    """GPUs that may be given away: idle ones first, then paused jobs', then those of who is least likely to stay."""
    paused = {job.job_id: len(ranked) for job in domain.residents if job.held}
    places = paused | {job.job_id: place for place, job in enumerate(ranked) if runs(job)}
    free: FreeGpus = {}
    for node in domain.nodes:
        worth = []
        for index, gpu in enumerate(node.gpus):
            if all(holder in places for holder in gpu.holders) and (gpu.healthy or gpu.holders):
                first = min((places[holder] for holder in gpu.holders), default=len(ranked) + 1)
                worth.append((-first, index))
        free[node.node_id] = [index for _, index in sorted(worth)]
    return free


def _place_of(domain: Domain, job: Job, free: FreeGpus) -> list[TaskPlacement] | None:
    """Where it runs: where it is or was if possible, else on other GPUs of the same servers; None: nowhere now."""
    if not job.gang:
        return _new_place(domain, job, free)
    if all(index in free.get(task.node_id, ()) for task in job.gang for index in task.gpu_indices):
        return job.gang
    nodes = {node.node_id: node for node in domain.nodes}
    return _moved(job, nodes, free)


def _moved(job: Job, nodes: dict[str, Node], free: FreeGpus) -> list[TaskPlacement] | None:
    """The same servers, other GPUs of the same type; a process cannot leave its server by being resumed."""
    gang = []
    for task in job.gang:
        node = nodes.get(task.node_id)
        if node is None or not node.remaps:
            return None
        gpu_type = node.gpus[task.gpu_indices[0]].gpu_type
        usable = [i for i in free[task.node_id] if node.gpus[i].gpu_type == gpu_type and node.gpus[i].healthy]
        if len(usable) < len(task.gpu_indices):
            return None
        indices = sorted(usable[: len(task.gpu_indices)])
        gang.append(TaskPlacement(node_id=task.node_id, gpu_indices=indices, first_rank=task.first_rank))
    return gang


def _new_place(domain: Domain, job: Job, free: FreeGpus) -> list[TaskPlacement] | None:
    nodes = [node for node in domain.nodes if node.usable]
    for gpu_type in gangs.accepted_types(job.spec.gpus, nodes):
        offered = [
            (node, indices)
            for node in nodes
            if (
                indices := [i for i in free[node.node_id] if node.gpus[i].healthy and node.gpus[i].gpu_type == gpu_type]
            )
        ]
        fit = gangs.best_of_type(job.spec.gpus, gpu_type, offered)
        if fit is not None:
            return [
                TaskPlacement(node_id=t.node_id, gpu_indices=sorted(t.gpu_indices), first_rank=t.first_rank)
                for t in fit.gang
            ]
    return None
