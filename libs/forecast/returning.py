"""When a suspended job goes on, where the forward run has ended before: where its memory is parked."""

from __future__ import annotations

from collections.abc import Mapping

from libs.forecast.lengths import NEVER, left_s
from libs.kernel.present import Present, PresentJob, PresentLength


def return_of(
    now: Present, lengths: Mapping[str, PresentLength], begin_s: float, now_s: float, job: PresentJob
) -> float:
    """When the job has GPUs again on the last of its servers; arguments as for `from_pool`.

    Under a policy with turns its place among the suspended jobs there says it; else the ends of jobs that run there.
    """
    if not all(_is_usable(now, task.node_id) for task in job.gang):
        return NEVER
    here = {task.node_id: len(task.gpu_indices) for task in job.gang}
    if now.turn_s:
        return max(_turn_s(now, node_id, gpus, job, now_s) for node_id, gpus in here.items())
    return max(_end_s(now, lengths, begin_s, now_s, node_id, gpus) for node_id, gpus in here.items())


def _is_usable(now: Present, node_id: str) -> bool:
    node = now.nodes.get(node_id)
    return node is not None and node.present and not node.draining


def _turn_s(now: Present, node_id: str, gpus: int, job: PresentJob, now_s: float) -> float:
    """When it has its turn: of equals the one that stands still for longest goes first, as many as fit side by side."""
    width = len(now.nodes[node_id].gpu_types)
    place, wanted = _place(job), gpus
    began_s = now_s - now.turn_s
    for other in now.jobs.values():
        there = _on(other, node_id)
        if there and other.is_placed:
            began_s = max(began_s, other.since_s)
        elif there and not other.held and _place(other) < place:
            wanted += there
    turns = -(-wanted // max(1, width))
    return max(now_s, began_s + now.turn_s) + (turns - 1) * now.turn_s


def _place(job: PresentJob) -> tuple[int, float, str]:
    return -job.priority, job.since_s, job.job_id


def _end_s(
    now: Present, lengths: Mapping[str, PresentLength], begin_s: float, now_s: float, node_id: str, gpus: int
) -> float:
    """When so many GPUs of the server are free, as jobs there end."""
    free = sum(now.nodes[node_id].free.values())
    running = [other for other in now.jobs.values() if other.is_placed and _on(other, node_id)]
    ends = [(max(begin_s, job.since_s) + left_s(lengths, job.job_id), _on(job, node_id)) for job in running]
    for end_s, freed in [(now_s, 0), *sorted(ends)]:
        free += freed
        if free >= gpus:
            return max(now_s, end_s)
    return NEVER


def _on(job: PresentJob, node_id: str) -> int:
    """Its GPUs on the server."""
    return sum(len(task.gpu_indices) for task in job.gang if task.node_id == node_id)
