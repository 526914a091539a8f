"""Coordinates the tasks that share a GPU of this node: looks at them, steps, and tells them (AntMan, section 3.3).

A GPU without a guest, and without a task whose memory an operator has bounded, is not looked at, and while there is
none on the node nothing here runs at all. The decisions are `libs/coordination`'s; so this file, the control files and
the pages of the GPUs are all that is to be read for what an agent does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from libs.contracts.base import Event
from libs.contracts.cluster import GpuInfo
from libs.coordination.actions import AnyAction, SetLimit, SetShare, Stop, Suspend
from libs.coordination.gangs import Gang, take, wrote
from libs.coordination.readings import Readings, TaskReading
from libs.coordination.settings import DEFAULTS, Settings
from libs.coordination.state import Coordination, Occupant
from libs.coordination.step import step
from libs.node.task import GUEST, Task
from torch_agent.clock import now_s
from torch_agent.coordinating.changes import Changes
from torch_agent.coordinating.readings import is_there, reading
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

    def leave(self, task: Task) -> None:
        """Suspend a guest for the sake of an owner."""

    def come_back(self, task: Task) -> None:
        """Let it go on."""

    def expel(self, task: Task, why: str) -> None:
        """End a guest that cannot be suspended, without blame."""

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
        self._settings, self._leased, self._stood_s = settings, leased, 0.0
        self._node_id, self._sharing, self._virtual, self._scales = node_id, sharing, virtual, scales
        self._gpus = {gpu.index: gpu for gpu in gpus}
        self._records = Records(folder)
        self.changes = Changes(node_id)
        self._states: dict[int, Coordination] = {}
        self._gangs: dict[str, Gang] = {}
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """There may be a guest, or a bound."""
        self._wake.set()

    def admits(self, task: Task, active: Sequence[Task]) -> bool:
        """Whether a task may begin, or go on, on its GPUs: where there are guests, room for it must have been made."""
        shared = _shared(task, active)
        gang = self._gangs.get(task.key)
        return not shared or (gang is not None and gang.admitted(shared))

    async def run(self, tasks: Tasks) -> None:
        """Coordinate for ever."""
        while True:
            self._wake.clear()
            began_s = time.monotonic()
            await self._leased()
            self._stood_s += time.monotonic() - began_s
            if not self.look(tasks, time.monotonic() - self._stood_s):
                await self._wake.wait()
            await asyncio.sleep(self._settings.period_s)

    def look(self, tasks: Tasks, now_s: float) -> bool:
        """One step of each GPU that has something to coordinate, or had it before. Returns whether there is any."""
        there = [task for task in tasks.active() if is_there(task)]
        self._forget_all_but(there)
        coordinated = {index for task in there if self._is_coordinated(tasks, task) for index in task.gpu_indices}
        for index in sorted(coordinated | self._states.keys()):
            here = [task for task in there if index in task.gpu_indices]
            self._step(tasks, index, here, now_s)
        self._tell(tasks, there)
        self._end_all_but(coordinated, there)
        return bool(self._states)

    def _is_coordinated(self, tasks: Tasks, task: Task) -> bool:
        """A guest is, and what an operator has bounded; and what an agent before this one has left with a limit."""
        bounded = task.role == GUEST or task.memory_bound is not None
        return bounded or self._sharing.is_left_limited(task, tasks.folder(task))

    def _forget_all_but(self, there: Sequence[Task]) -> None:
        keys = {task.key for task in there}
        self._gangs = {key: gang for key, gang in self._gangs.items() if key in keys}

    def _step(self, tasks: Tasks, index: int, here: Sequence[Task], now_s: float) -> None:
        state = self._states.setdefault(index, Coordination(settings=self._settings))
        readings = self._readings(tasks, index, here)
        self._record_before(state, index, now_s)
        result = step(state, readings, now_s)
        try:
            self._records.after(index, now_s, readings, result)
        except (OSError, KeyError) as error:
            warn_once(f"the coordination of GPU {index} is not recorded: {error!r}")
        by_key = {task.key: task for task in here}
        for action in result.actions:
            self._act(tasks, index, by_key[action.task], action)
        self._sharing.open(index, result.open_guests)
        if result.facts:
            tasks.report(result.facts)

    def _record_before(self, state: Coordination, index: int, now_s: float) -> None:
        try:
            self._records.before(state, index, now_s)
        except OSError as error:
            warn_once(f"the coordination of GPU {index} is not recorded: {error}")

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
        folder = tasks.folder(task)
        found = living(folder.pages)
        number, told = self._sharing.told(folder)
        return reading(
            task,
            index,
            found.pages,
            self._gang(tasks, task),
            unread=found.unread,
            told=(number, told.limit_at(task.gpu_indices.index(index)), told.share_ratio),
            # Images bring a C library of their own, which nothing is preloaded into.
            scales_memory=self._scales and not (self._virtual and task.order.image),
            computed_s=run_s if self._virtual else _unknown,
            now_s=now_s(),
        )

    def _gang(self, tasks: Tasks, task: Task) -> Gang:
        """A task that was told something before this agent came has that in its control file, under that number."""
        gang = self._gangs.get(task.key)
        if gang is None or gang.gpus != task.gpu_indices:
            number, told = self._sharing.told(tasks.folder(task))
            gang = self._gangs[task.key] = Gang(
                gpus=task.gpu_indices,
                limits={index: told.limit_at(place) for place, index in enumerate(task.gpu_indices)},
                changes=dict.fromkeys(task.gpu_indices, number),
                shares=dict.fromkeys(task.gpu_indices, told.share_ratio),
            )
            wrote(gang, number)
        return gang

    def _act(self, tasks: Tasks, index: int, task: Task, action: AnyAction) -> None:
        gang = self._gangs[task.key]
        take(gang, index, action)
        if isinstance(action, SetLimit | SetShare):
            self.changes.note(index, task, gang.limits.get(index), gang.share_ratio, time.time())
        if isinstance(action, Suspend):
            log.info("%s is suspended: %s", task.key, action.why)
            gang.admitted_by.clear()
            tasks.leave(task)
        elif isinstance(action, Stop):
            tasks.expel(task, action.why)
        elif task.yielding and gang.admitted(task.gpu_indices):
            tasks.come_back(task)
        if gang.paced:
            self._sharing.pace(task)

    def _tell(self, tasks: Tasks, there: Sequence[Task]) -> None:
        for task in there:
            gang = self._gangs.get(task.key)
            if gang is None:
                continue
            number = self._sharing.give(task, tasks.folder(task), gang.limits_in_order, gang.share_ratio)
            if number is not None:
                wrote(gang, number)

    def _end_all_but(self, coordinated: set[int], there: Sequence[Task]) -> None:
        """Another GPU is done with when its owner, if any, has applied that it has no limit, and that was told."""
        for index in self._states.keys() - coordinated:
            occupants = self._states[index].occupants.values()
            if all(_is_free(each) for each in occupants):
                del self._states[index]
                self._records.end(index)
        used: Mapping[str, Task] = {task.key: task for task in there}
        for key in self._gangs.keys() - {key for key, task in used.items() if self._is_shared(task)}:
            del self._gangs[key]

    def _is_shared(self, task: Task) -> bool:
        return any(index in self._states for index in task.gpu_indices)


def _is_free(occupant: Occupant) -> bool:
    told = occupant.reported.limit_bytes
    return occupant.limit_bytes == occupant.seen.memory_bound_bytes == told and not occupant.unconfirmed


def _shared(task: Task, active: Sequence[Task]) -> set[int]:
    """The GPUs where others have to make room for a task: all those of a guest, else those that have a guest."""
    wanted = set(task.wanted_gpus or task.gpu_indices)
    if task.role == GUEST:
        return wanted
    guests = [other for other in active if other is not task and other.role == GUEST and is_there(other)]
    return wanted & {index for guest in guests for index in guest.gpu_indices}


def _unknown(pid: int) -> float:
    """The time of a real GPU that a process has used is not told by the driver in a way that could be added up."""
    return 0.0
