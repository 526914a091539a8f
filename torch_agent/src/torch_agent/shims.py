"""The shims of the node's tasks: started as tasks are launched, and watched, so that the agent wakes when one ends."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable

from libs.node.task import Task
from torch_agent.folders import TaskFolder
from torch_agent.launching import Launcher


class Shims:
    """The shims of all tasks: those that this agent has started, and those that it has found."""

    def __init__(self, launcher: Launcher, changed: Callable[[], None]) -> None:
        """`changed` is called when a launch is through, and when a shim ends."""
        self._launcher, self._changed = launcher, changed
        self._launching: dict[str, asyncio.Task[None]] = {}
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._lingering: list[subprocess.Popen[bytes]] = []
        """Shims of tasks that have ended, until they have, too."""
        self._watched: dict[str, int] = {}
        """{task key: pidfd of its shim}."""

    def launch(self, task: Task, folder: TaskFolder) -> None:
        """Begin to prepare the task and to start its shim."""
        self._launching[task.key] = asyncio.create_task(self._launch(task, folder))

    async def _launch(self, task: Task, folder: TaskFolder) -> None:
        shim = await self._launcher.launch(task.order, folder)
        if shim is not None:
            self._started[task.key] = shim
        self._changed()

    def call_off(self, key: str) -> None:
        """Give up a launch that is under way: what it waits for may never come."""
        if (launching := self._launching.get(key)) is not None:
            launching.cancel()

    def is_starting(self, key: str) -> bool:
        """Whether the task is being launched, or runs behind a shim that this agent has started."""
        launching, shim = self._launching.get(key), self._started.get(key)
        return (launching is not None and not launching.done()) or (shim is not None and shim.poll() is None)

    def status(self, key: str) -> int | None:
        """Exit status of a shim that this agent has started; None: it runs, or there is none."""
        shim = self._started.get(key)
        return shim.poll() if shim is not None else None

    def watch(self, task: Task, folder: TaskFolder) -> None:
        """Be woken at once when the task's shim ends, whichever agent has started it."""
        if task.key in self._watched:
            return
        pid = folder.shim_pid()
        if pid is None:
            return
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:  # it has ended, or is no process at all
            return
        self._watched[task.key] = descriptor
        asyncio.get_running_loop().add_reader(descriptor, self._ended, task.key)

    def _ended(self, key: str) -> None:
        descriptor = self._watched.pop(key)
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        self._changed()

    def forget(self, key: str) -> None:
        """The task has ended."""
        self._launching.pop(key, None)
        self._launcher.doing.pop(key, None)
        self._launcher.setting_up.pop(key, None)
        shim = self._started.pop(key, None)
        if shim is not None and shim.poll() is None:  # it may keep a result for which there is no room
            self._lingering.append(shim)
        self._lingering = [shim for shim in self._lingering if shim.poll() is None]
        if key in self._watched:
            self._ended(key)
