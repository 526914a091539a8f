"""Finding the task that a session is to go into."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from libs.node.serving import VALID_S
from libs.node.task import Status, Task, Want, task_key
from torch_agent.environment import session_environment
from torch_agent.folders import TaskFolder

REPEATABLE_S = 4 * VALID_S
"""Longer than any signature is valid."""


class NotEntered(Exception):
    """There is nothing to go into.

    Attributes:
        status: of the HTTP answer.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class Room:
    """A running task, seen from a session in it. Use as a context manager."""

    def __init__(self, task: Task, folder: TaskFolder) -> None:
        self.task, self._folder = task, folder
        self._processes: list[Process] = []
        self._closing = ExitStack()

    def __enter__(self) -> Room:
        for pid in self._folder.ranks():
            with suppress(OSError):  # it has ended
                self._processes.append(process := Process(os.pidfd_open(pid)))
                self._closing.callback(os.close, process.descriptor)
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    @property
    def folder(self) -> Path:
        """The task's."""
        return self._folder.path

    @property
    def living(self) -> list[Process]:
        """The task's own processes, as far as their end was not seen."""
        return list(self._processes)

    def ended(self, process: Process) -> None:
        """Its end was seen."""
        self._processes.remove(process)

    @property
    def is_empty(self) -> bool:
        """Whether the task's own processes have ended."""
        return not self._processes

    @property
    def is_being_stopped(self) -> bool:
        """Whether the task was ordered to end; that reaches the session's processes, too, and perhaps earlier."""
        return self.task.want is Want.STOP

    @property
    def stands_still(self) -> bool:
        """Whether the task is suspended."""
        return self.task.status is Status.SUSPENDED

    def spec(self, command: list[str], *, rank: int, session_id: str, term: str | None) -> dict[str, Any]:
        """What the keeper of a session is to start: in the place of this rank, but not as one.

        Raises:
            NotEntered: what the task was started with cannot be read.
        """
        try:
            told = json.loads((self._folder.path / "spec.json").read_text())
            environment = _of_rank(told["environments"], rank)
            chosen = session_environment(environment, session_id=session_id, term=term)
            return {
                "command": command or [chosen.get("SHELL") or _shell()],
                "cwd": told["cwd"],
                "env": chosen,
                "terminal": term is not None,
                "data_limit_bytes": told["data_limit_bytes"],
                "nice": told["nice"],
                "cgroup": str(cgroup.path) if (cgroup := self._folder.cgroup) is not None else "",
            }
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise NotEntered(409, f"what {self.task.key} was started with cannot be read: {error!r}") from None


@dataclass(frozen=True)
class Process:
    """One that has not been reaped by the time it is waited for."""

    descriptor: int

    def fileno(self) -> int:
        """Readable once the process has ended."""
        return self.descriptor


class Entrance:
    """Into the tasks of this node.

    Args:
        task: finds a task by its key; asked from other threads than the one that supervises it.
        folder: finds the folder of a task.
    """

    def __init__(self, task: Callable[[str], Task | None], folder: Callable[[Task], TaskFolder]) -> None:
        self._task, self._folder = task, folder
        self._using = threading.Lock()
        self._used: dict[str, float] = {}
        """{id of a session: when it was opened}, for as long as its request could be repeated."""

    def room(self, job_id: str, attempt: int) -> Room:
        """The task of this attempt.

        Raises:
            NotEntered: 404 when it does not run here, 409 when it does not run now.
        """
        task = self._task(task_key(job_id, attempt))
        what = f"attempt {attempt} of {job_id}"
        if task is None or task.status is Status.EXITED:
            raise NotEntered(404, f"{what} does not run on this node")
        if task.want is Want.STOP:
            raise NotEntered(409, f"{what} is being stopped")
        if task.status is Status.SUSPENDED or task.want is Want.SUSPEND:
            raise NotEntered(409, f"{what} is suspended: other jobs may use its GPUs; wait until it runs again")
        if task.status is not Status.RUNNING:
            raise NotEntered(409, f"{what} is being started")
        return Room(task, self._folder(task))

    def use(self, session_id: str) -> None:
        """Begin a session of this id: a request that was recorded on its way is good for nothing.

        Raises:
            NotEntered: there was one before.
        """
        now_s = time.monotonic()
        with self._using:
            for old in [one for one, opened_s in self._used.items() if now_s - opened_s > REPEATABLE_S]:
                del self._used[old]
            if not session_id or session_id in self._used:
                raise NotEntered(409, "a session of this id was opened before")
            self._used[session_id] = now_s


def _of_rank(environments: list[dict[str, str]], rank: int) -> dict[str, str]:
    """The one of this rank; of a launcher, which starts the ranks itself, its own."""
    return max((e for e in environments if _rank(e) <= rank), key=_rank, default=environments[0])


def _rank(environment: dict[str, str]) -> int:
    return int(environment.get("SANJAYA_RANK") or environment["RANK"])


def _shell() -> str:
    return "/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh"
