"""Has the tasks that share a GPU of this node looked at, and tells them what follows (AntMan, section 3.3).

The decisions are those of `libs/node/admission.py` and `libs/coordination`; here pages and control files are read and
written, and what was done is recorded. While no GPU has anything to coordinate nothing here runs at all.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from libs.contracts.base import Event
from libs.contracts.cluster import GpuInfo
from libs.coordination.actions import Stop, Suspend
from libs.coordination.readings import Readings, TaskReading
from libs.coordination.settings import DEFAULTS, Settings
from libs.node.admission import Admission, Looked, Told
from libs.node.task import Task
from torch_agent.clock import now_s
from torch_agent.coordinating.changes import Changes
from torch_agent.coordinating.readings import measured, pages_on
from torch_agent.coordinating.records import Records
from torch_agent.folders import TaskFolder
from torch_agent.once import warn_once
from torch_agent.pages import living
from torch_agent.processes import run_s
from torch_agent.sharing import Sharing

log = logging.getLogger(__name__)

CONTEXT_BYTES = 768 * 1024 * 1024
"""Of a GPU's memory, per process: the driver's context and what libraries load into it, which no limit covers. On an
H200 that was 619 MiB for the context and some 700 with cuBLAS and cuDNN. Virtual GPUs have none."""


class Tasks(Protocol):
    """What is asked of the node's tasks."""

    def active(self) -> list[Task]:
        """Those that have not ended."""

    def folder(self, task: Task) -> TaskFolder:
        """Where its files are."""

    def changed(self, task: Task) -> None:
        """Something else is wanted of it."""

    def report(self, facts: Sequence[Event]) -> None:
        """Bring facts to the log."""


async def _at_once() -> None:
    """There is no lease."""


class Coordinator:
    """Of one node."""

    def __init__(
        self,
        node_id: str,
        gpus: Iterable[GpuInfo],
        sharing: Sharing,
        folder: Path,
        *,
        virtual: bool,
        scales: bool,
        settings: Settings = DEFAULTS,
        leased: Callable[[], Awaitable[None]] = _at_once,
    ) -> None:
        """Of a node with these GPUs.

        Args:
            node_id: of the node.
            gpus: its GPUs.
            sharing: tells tasks what they may have.
            folder: for the records of the last minutes.
            virtual: the GPUs are.
            scales: the memory of tasks can be limited.
            settings: of each GPU.
            leased: waits until tasks may run, if need be: what stands still answers nothing.
        """
        self._period_s, self._leased, self._stood_s = settings.period_s, leased, 0.0
        self._node_id, self._sharing, self._virtual, self._scales = node_id, sharing, virtual, scales
        self._gpus = {gpu.index: gpu for gpu in gpus}
        self._records = Records(folder)
        self.changes = Changes(node_id)
        self.admission = Admission(settings)
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """There may be a guest, or a bound."""
        self._wake.set()

    async def run(self, tasks: Tasks) -> None:
        """Coordinate for ever."""
        while True:
            self._wake.clear()
            began_s = time.monotonic()
            await self._leased()
            self._stood_s += time.monotonic() - began_s
            if not self.look(tasks, time.monotonic() - self._stood_s):
                await self._wake.wait()
            await asyncio.sleep(self._period_s)

    def look(self, tasks: Tasks, now_s: float) -> bool:
        """One step of each GPU that has something to coordinate, or had it before. Returns whether there is any."""
        active, admission = tasks.active(), self.admission
        left = [task.key for task in active if self._sharing.is_left_limited(task, tasks.folder(task))]
        gpus = admission.begin(active, left)
        for index in gpus:
            self._look_at(tasks, index, now_s)
        for task in admission.come_back():
            tasks.changed(task)
        for given in admission.given(gpus):
            number = self._sharing.give(given.task, tasks.folder(given.task), given.limits, given.share_ratio)
            if number is not None:
                admission.wrote(given.task, number)
        for index in admission.end():
            self._records.end(index)
        self._sharing.give_no_other(admission.gives)
        return not admission.rests

    def _look_at(self, tasks: Tasks, index: int, now_s: float) -> None:
        readings = self._readings(tasks, index, self.admission.here(index))
        try:
            self._records.before(self.admission.state(index), index, now_s)
        except OSError as error:
            warn_once(f"the coordination of GPU {index} is not recorded: {error}")
        looked = self.admission.step(index, readings, now_s)
        try:
            self._records.after(index, now_s, readings, looked.step)
        except (OSError, KeyError) as error:
            warn_once(f"the coordination of GPU {index} is not recorded: {error!r}")
        self._follow(tasks, index, looked)
        self._sharing.open(index, looked.step.open_guests)
        if looked.step.facts:
            tasks.report(looked.step.facts)

    def _follow(self, tasks: Tasks, index: int, looked: Looked) -> None:
        """Carry out what follows, but for what the tasks are told."""
        by_key = {task.key: task for task in self.admission.here(index)}
        for each in looked.allowed:
            self.changes.note(index, each.task, each.limit_bytes, each.share_ratio, time.time())
        for action in looked.step.actions:
            task = by_key[action.task]
            if isinstance(action, Suspend | Stop):
                log.info("%s has to %s: %s", action.task, "go" if isinstance(action, Stop) else "yield", action.why)
            if self.admission.is_paced(task):
                self._sharing.pace(task)
        for task in looked.changed:
            tasks.changed(task)

    def _readings(self, tasks: Tasks, index: int, here: Sequence[Task]) -> Readings:
        return Readings(
            node_id=self._node_id,
            index=index,
            capacity_bytes=self._gpus[index].memory_bytes,
            reserve_bytes=0 if self._virtual else CONTEXT_BYTES * len(here),
            waiting=self._sharing.owner_waits(index),
            tasks=[self._reading(tasks, index, task) for task in here],
        )

    def _reading(self, tasks: Tasks, index: int, task: Task) -> TaskReading:
        """A task that was told something before this agent came has that in its control file, under that number."""
        folder = tasks.folder(task)
        found = living(folder.pages)
        number, told = self._sharing.told(folder)
        what = measured(
            task,
            pages_on(task, index, found.pages, task.place),
            unread=found.unread,
            # Images bring a C library of their own, which nothing is preloaded into.
            scales_memory=self._scales and not (self._virtual and task.order.image),
            computed_s=run_s if self._virtual else _unknown,
            now_s=now_s(),
        )
        return self.admission.reading(
            task, index, Told(number=number, limits=told.memory_limits, share_ratio=told.share_ratio), **what
        )


def _unknown(pid: int) -> float:
    """The time of a real GPU that a process has used is not told by the driver in a way that could be added up."""
    return 0.0
