"""When a waiting job is expected to start: the cores run forward, with jobs that run for as long as is expected.

Each step costs what it costs live, and behind thousands of jobs there are thousands of steps. So the run ends after
some; from there on the jobs that still wait take GPUs out of one pool, in their order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush

import msgspec

from libs.forecast.branch import Branch, without_collection
from libs.forecast.lengths import lengths_of
from libs.forecast.playing import Nodes
from libs.forecast.search import endless
from libs.kernel.present import Present, PresentJob, PresentLength

FORWARD, POOL = "forward_run", "pool"
STEPS = 2_000
"""Most steps of the cores where there is time."""
NEVER = float("inf")


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """When the job is expected to start."""

    in_s: float | None
    """From the present on; None: not as long as nothing changes."""
    at_s: float | None
    """In seconds since the epoch."""
    how: str
    """`forward_run`: the cores have started it; `pool`: they were run forward, and the rest was estimated."""
    rests_on: dict[str, int] = {}
    """{what the lengths of jobs rest on: number of jobs}."""
    steps: int = 0


def expected_start(
    branch: Branch, job_id: str, steps: int = STEPS, is_over: Callable[[], bool] = endless
) -> Expectation:
    """When the job starts on the branch.

    Args:
        branch: of the present; it is used up.
        steps: so many are played before the rest is estimated.
        is_over: asked before each step; when it is, the rest is estimated, too.
    """
    with without_collection():
        expected = _played(branch, job_id, steps, is_over)
        branch.close()
    return expected


def _played(branch: Branch, job_id: str, steps: int, is_over: Callable[[], bool]) -> Expectation:
    begin_s, now = branch.now_s, branch.present("")
    lengths = lengths_of(now)
    rests_on: dict[str, int] = {}
    for length in lengths.values():
        rests_on[length.basis] = rests_on.get(length.basis, 0) + 1
    nodes, taken = Nodes(branch, now, lengths), 0
    ends = False
    while job_id not in branch.started and not ends and taken < steps and not is_over():
        ends = not _step(branch, nodes)
        taken += not ends
    how, at_s = FORWARD, branch.started.get(job_id, NEVER)
    if at_s == NEVER and not ends:
        how, at_s = POOL, _from_pool(branch.present(""), lengths, begin_s, branch.now_s, job_id)
    known = at_s < NEVER
    return Expectation(
        in_s=at_s - begin_s if known else None, at_s=at_s if known else None, how=how, rests_on=rests_on, steps=taken
    )


def _step(branch: Branch, nodes: Nodes) -> bool:
    """The next thing happens: on a node, or because a core wants to be woken. False: nothing does any more."""
    timer, due_s = branch.next_timer, nodes.next_s
    if due_s is not None and (timer is None or due_s <= timer[0]):
        nodes.go_on()
    elif timer is not None:
        branch.fire(*timer)
    else:
        return False
    return True


def _from_pool(now: Present, lengths: Mapping[str, PresentLength], begin_s: float, now_s: float, job_id: str) -> float:
    """When the job starts if all GPUs that it may use are one pool, taken in order of the queue.

    A job that does not fit is passed, until it has waited for as long as gangs do before GPUs are kept for them.
    """
    job = now.jobs.get(job_id)
    if job is None:
        return NEVER
    types = [t for node in now.nodes.values() if node.present for t in node.gpu_types if job.spec.gpus.accepts(t)]
    free, ends = len(types), list[tuple[float, int]]()
    for other in now.jobs.values():
        if other.is_placed:
            gpus = sum(len(task.gpu_indices) for task in other.gang)
            free -= gpus
            ran_s = 0.0 if other.since_s > begin_s else now_s - begin_s
            ends.append((max(now_s, now_s - ran_s + _of(lengths, other)), gpus))
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


def _of(lengths: Mapping[str, PresentLength], job: PresentJob) -> float:
    length = lengths.get(job.job_id)
    return length.in_s if length is not None else NEVER


def _lines(now: Present, job: PresentJob) -> dict[int, deque[PresentJob]]:
    """{GPUs: the jobs that wait for so many, in order}, of those that may use the same types."""
    types = {t: None for node in now.nodes.values() for t in node.gpu_types if job.spec.gpus.accepts(t)}
    waiting = [
        other
        for other in now.jobs.values()
        if not other.gang and not other.held and any(other.spec.gpus.accepts(t) for t in types)
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
        heappush(ends, (now_s + _of(lengths, head), gpus))
    return free
