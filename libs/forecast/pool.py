"""When a job starts if all GPUs that it may use are one pool: what is left behind the last step of a forward run."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from heapq import heapify, heappop, heappush

from libs.forecast.lengths import NEVER, left_s
from libs.forecast.returning import return_of
from libs.kernel.present import Present, PresentJob, PresentLength


def from_pool(now: Present, lengths: Mapping[str, PresentLength], begin_s: float, now_s: float, job_id: str) -> float:
    """When the job starts if all GPUs that it may use are one pool, taken in order of the queue.

    A job that does not fit is passed, until it has waited for as long as gangs do before GPUs are kept for them. A
    suspended job goes on where it is (`returning.py`).

    Args:
        now: as of `now_s`, the end of the forward run.
        lengths: {job: how long it runs}, from `begin_s` on, or from its placement on where that came later.
        begin_s: the begin of the forward run.
        now_s: seconds since the epoch, as `begin_s`.
        job_id: the job that is asked about.
    """
    job = now.jobs.get(job_id)
    if job is None or job.held:
        return NEVER
    if job.gang:
        return return_of(now, lengths, begin_s, now_s, job)
    usable, busy = _usable(now, job), dict[tuple[str, int], float]()
    for other in now.jobs.values():
        if other.is_placed:
            end_s = max(now_s, max(begin_s, other.since_s) + left_s(lengths, other.job_id))
            held = ((task.node_id, index) for task in other.gang for index in task.gpu_indices)
            # Of jobs that share a GPU the last one gives it back.
            busy |= {gpu: max(end_s, busy.get(gpu, 0.0)) for gpu in held if gpu in usable}
    free, ends = len(usable) - len(busy), list(Counter(busy.values()).items())
    heapify(ends)
    patience_s = now.settings.get("reserve_after_s", NEVER)
    lines = _lines(now, job)
    while True:
        free = _take(lines, free, ends, now_s, lengths, patience_s, job_id)
        if free < 0:
            return now_s
        if not ends:
            return NEVER
        now_s, gpus = heappop(ends)
        free += gpus


def _usable(now: Present, job: PresentJob) -> dict[tuple[str, int], None]:
    """The GPUs that the job may use: (node, index)."""
    return {
        (node.node_id, index): None
        for node in now.nodes.values()
        if node.present and not node.draining and job.is_for(node)
        for index, gpu_type in enumerate(node.gpu_types)
        if job.spec.gpus.accepts(gpu_type)
    }


def _lines(now: Present, job: PresentJob) -> dict[int, deque[PresentJob]]:
    """{GPUs: the jobs that wait for so many, in order}, of those that may use the same types."""
    nodes = [node for node in now.nodes.values() if job.is_for(node)]
    types = {t: None for node in nodes for t in node.gpu_types if job.spec.gpus.accepts(t)}
    waiting = [
        other
        for other in now.jobs.values()
        if not other.gang
        and not other.held
        and (not job.pool or other.pool in ("", job.pool))
        and any(other.spec.gpus.accepts(t) for t in types)
    ]
    found: dict[int, deque[PresentJob]] = {}
    for other in sorted(waiting, key=lambda other: other.order):
        found.setdefault(other.spec.gpus.count, deque()).append(other)
    return found


def _take(
    lines: dict[int, deque[PresentJob]],
    free: int,
    ends: list[tuple[float, int]],
    now_s: float,
    lengths: Mapping[str, PresentLength],
    patience_s: float,
    job_id: str,
) -> int:
    """Jobs take what is free, in order. Returns what is left; -1: the job that is asked about has started."""
    passed: dict[int, None] = {}
    while heads := [(line[0].order, gpus) for gpus, line in lines.items() if line and gpus not in passed]:
        _, gpus = min(heads)
        head = lines[gpus][0]
        if gpus > free:
            if now_s - head.since_s >= patience_s:
                return free
            passed[gpus] = None
            continue
        lines[gpus].popleft()
        if head.job_id == job_id:
            return -1
        free -= gpus
        heappush(ends, (now_s + left_s(lengths, head.job_id), gpus))
    return free
