"""Removes the folders of tasks that ended long ago."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

from libs.node.task import Status, Task
from torch_agent.folders import TaskFolder
from torch_agent.journal import Journal

KEEP_ENDED_S = 3600.0


class Removing:
    """One folder at a time, each by a process of its own.

    A task is forgotten when its folder is gone: a removal that ends with the agent begins anew with the next one.
    """

    def __init__(self, tasks: dict[str, Task], journal: Journal, folder: Callable[[Task], TaskFolder]) -> None:
        """`tasks`: all tasks of the node; those that are forgotten are taken out."""
        self._tasks, self._journal, self._folder = tasks, journal, folder
        self._ended_at_s: dict[str, float] = {}
        """{task key: when this agent has first known that the task has ended}."""
        self._removal: tuple[str, subprocess.Popen[bytes]] | None = None
        """The task with the folder that is being removed, and the process that removes it."""

    def ended(self, key: str) -> None:
        """The task has ended just now."""
        self._ended_at_s[key] = time.monotonic()

    def go_on(self) -> None:
        """Forget the task whose folder is gone, and begin with the next that is old enough."""
        if self._removal is not None and not self._forget_removed(*self._removal):
            return
        now_s = time.monotonic()
        for key, task in self._tasks.items():
            is_old = task.status is Status.EXITED and now_s - self._ended_at_s.setdefault(key, now_s) > KEEP_ENDED_S
            if is_old and self._removal is None:
                self._removal = key, self._folder(task).remove()

    def _forget_removed(self, key: str, removal: subprocess.Popen[bytes]) -> bool:
        """Forget the task if its folder is gone; returns whether it is."""
        if removal.poll() is None:
            return False
        self._removal = None
        folder = self._folder(self._tasks.pop(key))
        self._journal.forget(key, str(folder.path))
        self._ended_at_s.pop(key, None)
        return True
