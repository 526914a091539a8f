"""How tasks share the time of the node's GPUs: their pages, their roles and shares, and what paces guests."""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from libs.contracts.placement import LaunchTask
from libs.node.admission import share_alone
from libs.node.task import GUEST, Status, Task, Want, task_key
from torch_agent.folders import TaskFolder
from torch_agent.harness.allowance import Allowance, Limits, smallest
from torch_agent.harness.control import allow, create_control, current_allowance, mend_control
from torch_agent.harness.gpu_page import LINK, GpuPage, create, mend, now_s
from torch_agent.harness.regular import regular
from torch_agent.harness.versions import Unreadable
from torch_agent.once import warn_once
from torch_agent.pacing import LOCK, MODULE, VIRTUAL, pacer_of
from torch_agent.pages import living, living_pages
from torch_agent.processes import lives

log = logging.getLogger(__name__)

LOOK_S = 0.25
"""How often owners that have died, and guests without gates, are looked for."""
SPACING_MOST_S = 0.01
"""Gates that are further apart do not keep a guest in its pace."""
PACER_AGAIN_S = 5.0
"""Between two starts of a task's pacer."""
GATES_LEAST = 64
"""Gates after which that is known."""


class Sharing:
    """The pages of the node's GPUs, and what the processes of its tasks have been told last."""

    def __init__(self, folder: Path, gpus: Iterable[int], *, virtual: bool) -> None:
        """Make the pages of these GPUs in the folder, or take over those of an earlier agent."""
        self._virtual = virtual
        self._paths = {index: folder / f"{index}.page" for index in gpus}
        self._pages: dict[int, GpuPage] = {}
        """Those that can be read."""
        self._kept: dict[str, object] = {}
        """{task key: what its processes have been told last}."""
        self._numbers: dict[str, int] = {}
        """{task key: number of the change that says it}."""
        self._given: dict[str, tuple[Limits, float]] = {}
        """{task key: limits and share that coordination gives it}."""
        self._left: dict[str, Limits] = {}
        """{task key: the limits that were in its control file when this agent came}."""
        self._paced: set[str] = set()
        """Keys of the tasks whose gates do not do."""
        self._pacers: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
        """{task key: the pacer that was started last, and when}."""
        for index, path in self._paths.items():
            try:
                create(path)
                self._pages[index] = GpuPage(path)
            except (Unreadable, OSError) as error:
                warn_once(f"{error}: GPU {index} takes no guests")

    def begins(self, order: LaunchTask, pages: Path) -> None:
        """Before the processes of a task are started: what they find in the folder of their pages."""
        create_control(pages)
        self._link(order.gpu_indices, pages)
        key = task_key(order.job_id, order.attempt)
        _tell(pages, order.role, *self._given.get(key, ((), share_alone(order.role, order.compute_share_ratio))))

    def keep(self, task: Task, folder: TaskFolder) -> None:
        """Tell the processes of a task that has begun what has changed for them, if anything has."""
        stops = task.want is Want.STOP
        given = self._given_to(task, folder)
        told = (tuple(task.gpu_indices), task.role, given, stops)
        if self._kept.get(task.key) == told or not folder.pages.exists():
            return
        self._kept[task.key] = told
        # One that is to leave has to come to its boundary: no gate is in its way.
        limits, share = given
        try:
            self._link(task.gpu_indices, folder.pages)
            self._numbers[task.key] = _tell(folder.pages, task.role, limits, 1.0 if stops else share)
        except (Unreadable, OSError) as error:
            warn_once(f"{error}: the task's processes keep the share that they have")
        for index in task.gpu_indices:
            if (page := self._page(index)) is not None:
                page.ring()

    def _page(self, index: int) -> GpuPage | None:
        """The page of a GPU; None: it takes no guests, or a task has shortened it, until the next look."""
        page = self._pages.get(index)
        return page if page is not None and page.is_whole else None

    def _given_to(self, task: Task, folder: TaskFolder) -> tuple[Limits, float]:
        """What coordination gives a task, else what holds without it; limits of an agent before this one stay."""
        return self._given.get(task.key) or (self._left_to(task, folder), share_alone(task.role, task.share_bound))

    def _left_to(self, task: Task, folder: TaskFolder) -> Limits:
        if task.key not in self._left:
            self._left[task.key] = self.told(folder)[1].memory_limits
        return self._left[task.key]

    def is_left_limited(self, task: Task, folder: TaskFolder) -> bool:
        """Whether an agent before this one has limited the task, and nothing has been said to it since."""
        return task.key not in self._given and smallest(self._left_to(task, folder)) is not None

    def give(self, task: Task, folder: TaskFolder, limits: Limits, share_ratio: float) -> int | None:
        """Have a task keep to what coordination gives it from now on; a task that has not begun finds it when it does.

        Args:
            task: it.
            folder: its own.
            limits: bytes of its memory on each of its GPUs.
            share_ratio: of their time.

        Returns:
            Number of the change that says it; None where it cannot be written yet, or not at all.
        """
        self._given[task.key] = limits, share_ratio
        if task.status is Status.ACCEPTED:
            return None
        self.keep(task, folder)
        return self._numbers.get(task.key)

    def give_no_other(self, gives: Callable[[str], bool]) -> None:
        """Tasks with other keys are not given anything any more; a limit that they still have is one that was left."""
        for key in [key for key in self._given if not gives(key)]:
            self._given.pop(key)
            self._left.pop(key, None)

    def told(self, folder: TaskFolder) -> tuple[int, Allowance]:
        """The last change that a task was told, and its number; of none: 0, no limit and no share."""
        try:
            number, found = current_allowance(folder.pages)
        except (Unreadable, OSError):
            return 0, Allowance(share_ratio=0.0)
        is_share = 0.0 <= found.share_ratio <= 1.0  # the file lies in reach of the task, which may have written any
        return number, found if is_share else replace(found, share_ratio=0.0)

    def open(self, index: int, guests: int) -> None:
        """So many guests of a GPU may compute outside of its owner's gaps."""
        page = self._page(index)
        if page is not None and page.open != guests:
            page.allow(guests)
            page.ring()

    def owner_waits(self, index: int) -> bool:
        """Whether the GPU has an owner that leaves it alone just now."""
        page = self._page(index)
        return page is not None and page.owner_pid != 0 and page.gap_s(now_s()) > 0

    def pace(self, task: Task) -> None:
        """The gates of this guest do not do: it is stopped and continued from outside from now on."""
        self._paced.add(task.key)

    def look(self, tasks: Sequence[tuple[Task, TaskFolder]]) -> None:
        """Clear the signals of owners that have died, and have those guests paced that need it.

        Args:
            tasks: those that have not ended.
        """
        for index, page in self._pages.items():
            self._mend(index, page)
            if page.is_whole and page.owner_pid and not lives(page.owner_pid):
                page.clear()
        keys = {task.key for task, _ in tasks}
        for known in (self._kept, self._numbers, self._given, self._left):
            for key in known.keys() - keys:
                known.pop(key)
        self._paced &= keys
        self._pacers = {key: each for key, each in self._pacers.items() if each[0].poll() is None or key in keys}
        for task, folder in tasks:
            self._look_at(task, folder)

    def _mend(self, index: int, page: GpuPage) -> None:
        if page.is_whole:
            return
        try:
            mend(self._paths[index])
        except OSError as error:
            warn_once(f"{error}: GPU {index} takes no guests")
        else:
            log.warning("a task had changed the size of the page of GPU %d: it is mended", index)

    def _look_at(self, task: Task, folder: TaskFolder) -> None:
        if task.role != GUEST and not (folder.path / LOCK).exists():
            return
        pacer, needed = pacer_of(folder), self._needs_pacer(task, folder)
        if needed and pacer is None:
            self._start_pacer(task, folder)
        elif pacer is not None and not needed:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pacer, signal.SIGTERM)

    def _needs_pacer(self, task: Task, folder: TaskFolder) -> bool:
        """Whether the task is to be kept in a pace that its own gates do not keep.

        A part of a gang over several nodes is never stopped alone.
        """
        runs = task.runs and task.want is Want.RUN and task.order.node_count == 1
        if task.role != GUEST or not runs or not all(index in self._pages for index in task.gpu_indices):
            return False
        there = [page for index in task.gpu_indices if (page := self._page(index)) is not None]
        has_owner = any(page.owner_pid for page in there)
        _, share = self._given.get(task.key, ((), share_alone(task.role, task.share_bound)))
        if not has_owner and share in (0.0, 1.0):
            return False
        if task.key not in self._paced and _gates_do_not(folder):
            self._paced.add(task.key)
        return task.key in self._paced or not _has_gates(folder)

    def _start_pacer(self, task: Task, folder: TaskFolder) -> None:
        """Unless one is about to begin, or has ended a moment ago: something in the task's folder is in its way."""
        before, started_s = self._pacers.get(task.key, (None, 0.0))
        if before is not None and (before.poll() is None or now_s() - started_s < PACER_AGAIN_S):
            return
        log.info("%s is paced from outside", task.key)
        command = [sys.executable, "-m", MODULE, str(folder.path), *([VIRTUAL] if self._virtual else [])]
        try:
            if mend_control(folder.pages):
                self._kept.pop(task.key, None)
                self.keep(task, folder)
            with open(folder.path / "pacer.log", "ab", opener=regular) as output:
                pacer = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
                )
        except OSError as error:
            warn_once(f"{error}: {task.key} is not paced from outside")
            return
        self._pacers[task.key] = pacer, now_s()

    def _link(self, gpus: Sequence[int], pages: Path) -> None:
        """Have the processes of a task find the pages of their GPUs, in the order of their local ranks."""
        if pages.is_symlink():
            raise OSError(errno.ELOOP, "expected a folder of the task's own", str(pages))
        for old in pages.glob(f"{LINK}*"):
            old.unlink()
        for place, index in enumerate(gpus):
            if index in self._pages:
                os.link(self._paths[index], pages / f"{LINK}{place}")


def _tell(pages: Path, role: str, limits: Limits, share: float) -> int:
    return allow(pages, Allowance(role=role, memory_limits=limits, share_ratio=share))


def _has_gates(folder: TaskFolder) -> bool:
    """Whether all ranks that train pass gates; where that cannot be read just now it is as it was."""
    found = living(folder.pages)
    if found.unread:
        return pacer_of(folder) is None
    gates = [page.gate.gates if page.gate is not None else 0 for page in found.pages]
    return bool(gates) and all(gates)


def _gates_do_not(folder: TaskFolder) -> bool:
    """Whether gates are too far apart."""
    gates = [page.gate for page in living_pages(folder.pages) if page.gate is not None]
    return any(gate.gates >= GATES_LEAST and gate.spacing_p99_s > SPACING_MOST_S for gate in gates)
