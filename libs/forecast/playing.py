"""Nodes on a branch: they do at once what they are told, and jobs run for as long as they are expected to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush

from libs.contracts.agent import JobExited, JobResumed, JobStarted, JobSuspended
from libs.contracts.base import Event
from libs.contracts.placement import LaunchTask, ResumeTask, StopTask, SuspendTask
from libs.forecast.branch import Branch
from libs.forecast.lengths import Lengths, left_s
from libs.kernel.present import Present, Report

Task = tuple[str, int]
"""Job and attempt."""


@dataclass
class Run:
    """An attempt that has GPUs, or stands still."""

    left_s: float
    nodes: dict[str, bool] = field(default_factory=dict)
    """{node: whether its task runs}."""
    expected: int = 1
    """Nodes of the gang."""
    since_s: float = 0.0
    """Up to when `left_s` is counted."""
    turn: int = 0
    """Counts stops and starts: an end that was planned before one of them does not come."""

    @property
    def goes(self) -> bool:
        """Whether it makes progress."""
        return len(self.nodes) == self.expected and all(self.nodes.values())


class Nodes:
    """What agents would say, as far as starts depend on it. Moves are not played: nothing proposes them on a branch."""

    def __init__(self, branch: Branch, now: Present, lengths: Lengths) -> None:
        self._branch, self._lengths = branch, lengths
        self._runs: dict[Task, Run] = {}
        self._kept: dict[str, float] = {}
        """{job: what is left of it}, of those that were stopped and keep their work."""
        self._planned: list[tuple[float, int, str, Event | tuple[Task, int]]] = []
        self._number = 0
        branch.on_order = self._ordered
        for job in now.jobs.values():
            if not job.gang:
                continue
            key = (job.job_id, job.attempt)
            nodes = {task.node_id: job.is_placed for task in job.gang}
            run = self._runs[key] = Run(left_s(lengths.of, job.job_id), nodes, len(nodes), branch.now_s)
            for node_id in job.leaving:
                self._say(node_id, _stopped(key, node_id))
            for task in job.gang:
                if (report := job.unreported.get(task.node_id)) is not None:
                    self._say(task.node_id, _REPORTS[report](key, task.node_id, task.gpu_indices))
            if job.is_placed:
                self._plan_end(key, run)

    @property
    def next_s(self) -> float | None:
        """When something happens next; None: nothing does."""
        return self._planned[0][0] if self._planned else None

    def go_on(self) -> None:
        """The next thing happens."""
        due_s, _, node_id, what = heappop(self._planned)
        self._branch.advance_to(due_s)
        if isinstance(what, Event):
            self._branch.feed(f"agent/{node_id}", what)
            return
        key, turn = what
        run = self._runs.get(key)
        if run is None or run.turn != turn:
            return
        del self._runs[key]
        for node in run.nodes:
            exited = JobExited(job_id=key[0], attempt=key[1], node_id=node, exit_code=0, signal=None, outcome="exited")
            self._branch.feed(f"agent/{node}", exited)

    def _at(self, due_s: float, node_id: str, what: Event | tuple[Task, int]) -> None:
        self._number += 1
        heappush(self._planned, (due_s, self._number, node_id, what))

    def _say(self, node_id: str, event: Event) -> None:
        self._at(self._branch.now_s, node_id, event)

    def _plan_end(self, key: Task, run: Run) -> None:
        if run.left_s < float("inf"):
            self._at(self._branch.now_s + run.left_s, "", (key, run.turn))

    def _ordered(self, order: Event) -> None:
        """A node does what it is told."""
        if not isinstance(order, LaunchTask | StopTask | SuspendTask | ResumeTask):
            return
        key, node_id = (order.job_id, order.attempt), order.node_id
        run, now_s = self._runs.get(key), self._branch.now_s
        if isinstance(order, LaunchTask):
            run = self._runs.setdefault(key, Run(self._left_s(order.job_id), expected=order.node_count, since_s=now_s))
            self._say(node_id, _started(key, node_id, order.gpu_indices))
            self._set(key, run, node_id, runs=True)
        elif run is None:
            return
        elif isinstance(order, StopTask):
            self._set(key, run, node_id, runs=False)
            if order.job_id in self._lengths.keep_work:
                self._kept[order.job_id] = run.left_s
            self._say(node_id, _stopped(key, node_id))
        elif isinstance(order, SuspendTask):
            self._set(key, run, node_id, runs=False)
            self._say(node_id, _suspended(key, node_id, []))
        else:
            self._set(key, run, node_id, runs=True)
            self._say(node_id, _resumed(key, node_id, order.gpu_indices))

    def _left_s(self, job_id: str) -> float:
        """Of a job that is placed."""
        return self._kept.get(job_id, left_s(self._lengths.of, job_id))

    def _set(self, key: Task, run: Run, node_id: str, *, runs: bool) -> None:
        now_s = self._branch.now_s
        if run.goes:
            run.left_s = max(0.0, run.left_s - (now_s - run.since_s))
        run.since_s, run.turn = now_s, run.turn + 1
        run.nodes[node_id] = runs
        if run.goes:
            self._plan_end(key, run)


def _started(key: Task, node_id: str, gpus: list[int]) -> JobStarted:
    return JobStarted(job_id=key[0], attempt=key[1], node_id=node_id, pid=1)


def _suspended(key: Task, node_id: str, gpus: list[int]) -> JobSuspended:
    return JobSuspended(job_id=key[0], attempt=key[1], node_id=node_id, parked=True)


def _resumed(key: Task, node_id: str, gpus: list[int]) -> JobResumed:
    return JobResumed(job_id=key[0], attempt=key[1], node_id=node_id, gpu_indices=gpus)


_REPORTS: Mapping[Report, Callable[[Task, str, list[int]], Event]] = {
    "started": _started,
    "suspended": _suspended,
    "resumed": _resumed,
}
"""What an agent says: of a task on a node, and its GPUs there."""


def _stopped(key: Task, node_id: str) -> JobExited:
    return JobExited(job_id=key[0], attempt=key[1], node_id=node_id, exit_code=None, signal=15, outcome="stopped")
