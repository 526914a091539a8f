"""How each task gets on from heartbeat to heartbeat, by this machine's own clock; `libs/node/alarms.py` judges it.

Only time that this agent has seen counts, while the task runs: an agent that was away or stopped begins anew, and the
machine's clock may be set as it likes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from libs.contracts.agent import RankSample, TaskSampled
from libs.node.task import Task, Want
from torch_agent.harness.page import PageReading

LONGEST_LOOK_S = 10.0
"""Between two looks that are further apart the agent itself, or the machine, has stood still."""
BUSY_RATIO = 0.2
"""Part of one core. Threads that only wait for something to happen need less, and so does what reports to a service."""
IDLE_RATIO = 0.02
"""Of a GPU, or of the core that a virtual one is."""


@dataclass
class _Rank:
    at: tuple[int, int, int]
    """Process, mini-batches and signs, as seen last."""
    quiet_s: float = 0.0
    busy_s: float = 0.0
    longest_s: float = 0.0


@dataclass
class _Progress:
    ranks: dict[int, _Rank]
    cpu_s: float | None = None
    """Of all its processes, at the look before; None: there was none, or it was not asked for."""
    idle_s: float = 0.0


class Watching:
    """Looks at all tasks of the node, one look per heartbeat."""

    def __init__(self, cpu_s: Callable[[Task], float], *, virtual: bool) -> None:
        """`cpu_s`: CPU time of all processes of a task so far; `virtual`: GPUs are parts of the CPU."""
        self._cpu_s, self._virtual = cpu_s, virtual
        self._tasks: dict[str, _Progress] = {}
        self._looked_s: float | None = None

    def look(
        self,
        tasks: Sequence[Task],
        readings: Mapping[str, Sequence[PageReading]],
        utilisations: Mapping[int, float],
        now_s: float,
        *,
        leased: bool = True,
    ) -> list[TaskSampled]:
        """Sample the tasks that have been started.

        Args:
            readings: {task key: pages of its living processes}.
            utilisations: {GPU index: utilisation ratio}, of real GPUs.
            now_s: by a clock that is never set.
            leased: tasks may run; else they stand still, which is no stall.
        """
        elapsed_s = 0.0 if self._looked_s is None else now_s - self._looked_s
        self._looked_s = now_s
        if elapsed_s > LONGEST_LOOK_S:
            elapsed_s = 0.0
        self._tasks = {task.key: self._tasks.get(task.key, _Progress({})) for task in tasks}
        return [self._sample(task, readings[task.key], utilisations, elapsed_s, leased=leased) for task in tasks]

    def _sample(
        self,
        task: Task,
        readings: Sequence[PageReading],
        utilisations: Mapping[int, float],
        elapsed_s: float,
        *,
        leased: bool,
    ) -> TaskSampled:
        progress, runs = self._tasks[task.key], leased and task.runs and task.want is not Want.STOP
        before = progress.ranks
        goes_on = any(_done(before.get(reading.rank)) != reading.minibatches_total for reading in readings)
        computing = self._computes(task, progress, utilisations, elapsed_s, goes_on=goes_on) if runs else None
        quiet_s = elapsed_s if runs else 0.0
        busy_s = 0.0 if computing is False else quiet_s
        progress.ranks = {page.rank: _seen(before.get(page.rank), page, quiet_s, busy_s) for page in readings}
        return TaskSampled(
            job_id=task.order.job_id,
            attempt=task.order.attempt,
            node_id=task.order.node_id,
            running=runs,
            ranks=[_rank_sample(reading, progress.ranks[reading.rank]) for reading in readings],
            computing=computing,
            idle_s=round(progress.idle_s, 3),
        )

    def _computes(
        self,
        task: Task,
        progress: _Progress,
        utilisations: Mapping[int, float],
        elapsed_s: float,
        *,
        goes_on: bool,
    ) -> bool | None:
        """Whether anything is computed; notes for how long the GPUs have been idle."""
        if goes_on:  # what does mini-batches need not be measured
            progress.cpu_s, progress.idle_s = None, 0.0
            return True
        before, progress.cpu_s = progress.cpu_s, self._cpu_s(task)
        if before is None or elapsed_s <= 0.0:
            return None
        cpu = max(0.0, progress.cpu_s - before) / elapsed_s
        gpu = cpu if self._virtual else max((utilisations.get(index, 1.0) for index in task.gpu_indices), default=1.0)
        progress.idle_s = progress.idle_s + elapsed_s if gpu < IDLE_RATIO else 0.0
        return cpu >= BUSY_RATIO or gpu >= BUSY_RATIO


def _done(seen: _Rank | None) -> int | None:
    return None if seen is None else seen.at[1]


def _seen(before: _Rank | None, reading: PageReading, quiet_s: float, busy_s: float) -> _Rank:
    at = (reading.pid, reading.minibatches_total, reading.signs)
    if before is None or before.at[0] != reading.pid:
        return _Rank(at)
    if before.at == at:
        return _Rank(at, before.quiet_s + quiet_s, before.busy_s + busy_s, before.longest_s)
    return _Rank(at, longest_s=max(before.longest_s, before.quiet_s))


def _rank_sample(reading: PageReading, seen: _Rank) -> RankSample:
    loss = reading.loss
    return RankSample(
        rank=reading.rank,
        minibatches_total=reading.minibatches_total,
        quiet_s=round(seen.quiet_s, 3),
        busy_s=round(seen.busy_s, 3),
        longest_quiet_s=round(seen.longest_s, 3),
        p99_s=round(reading.p99_s or reading.minibatch_mean_s, 9),  # older harnesses have no p99
        nonfinite=reading.nonfinite,
        loss_nonfinite=str(loss) if reading.nonfinite and loss is not None and not math.isfinite(loss) else "",
    )
