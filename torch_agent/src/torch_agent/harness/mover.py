"""Hands a job over to another process, or takes one over, step by step with the agent.

source:       stands still, parked ──agent: "save"──> page: saved, in which descriptor ──> goes on, or is killed
destination:  page: ready ──agent: puts the file there──> page: restored ──agent: next turn──> goes on
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Protocol

from .attempts import Fenced
from .control import ControlReader
from .leaving import Leaving
from .moving.loading import load
from .moving.saving import save
from .page import Handover, PageWriter
from .parking.parking import Parker

RESTORES = "SANJAYA_RESTORES"
"""Environment variable of a process that is to take over a state: the folder where that will be."""
LOOK_S, LONGEST_LOOK_S = 0.0005, 0.02
"""How often it is looked whether what is waited for has happened."""


class Movable(Protocol):
    """What can be moved: a Job."""

    @property
    def elastic(self) -> bool:
        """Whether its state may go on in another number of processes."""

    def state(self) -> Any:
        """All that the job is; tensors are the job's own, not copies."""

    def restore(self, state: Any) -> None:
        """Become the job that had this state; its tensors are on the host."""

    def save(self) -> None:
        """Make a checkpoint at this boundary, if the job has any."""

    def keep(self, state: Any, parked: Mapping[int, Any]) -> None:
        """Make a checkpoint of this state together with the other ranks, if the job has any, without a device.

        Args:
            state: as `state` had it.
            parked: {identity of a storage that is empty now: its bytes, on the host}.
        """


class Mover:
    """Of one process."""

    def __init__(self, job: Movable, control: ControlReader, page: PageWriter, leaving: Leaving) -> None:
        self._job, self._control, self._page, self._leaving = job, control, page, leaving
        self._state: Any = None
        """While the process stands still; None if it could not be collected."""
        self._file = -1
        """A file in memory, with the state as it was saved last."""
        self._answered = 0
        self._told = Handover()
        self._tell(movable=True, resizable=job.elastic)

    @property
    def asked_to_leave(self) -> bool:
        """Whether the Job has been, which may have been before the process stood still."""
        return self._leaving.asked

    def hold(self) -> None:
        """Collect the state, before its tensors are parked: afterwards they can only be saved."""
        try:
            self._state = self._job.state()
        except Exception as error:
            print(f"sanjaya: the state of this job cannot be collected: {error!r}", file=sys.stderr)

    def save_if_asked(self, parker: Parker | None) -> None:
        """Answer the newest request, if it has not been answered.

        Args:
            parker: has the memory; None when it is on the device.
        """
        request = self._control.saves
        if request <= self._answered:
            return
        began = time.perf_counter()
        try:
            self._save(parker)
        except Exception as error:
            print(f"sanjaya: the state of this job cannot be saved: {error!r}", file=sys.stderr)
            self._free()
        self._answered = request
        self._tell(
            saved=request,
            save_failed=self._file < 0,
            save_fd=self._file,
            save_bytes=os.fstat(self._file).st_size if self._file >= 0 else 0,
            save_s=time.perf_counter() - began,
        )

    def save_to_leave(self, parker: Parker | None) -> None:
        """Have the job make a checkpoint of the state that was collected: the process is about to end.

        Args:
            parker: has the memory; None when it is on the device.
        """
        try:
            with self._on_host(parker) as parked:
                self._job.keep(self._collected(), parked)
        except Fenced as refused:  # the process ends where it stands: its tensors have no memory
            print(refused, file=sys.stderr)
        except Exception as error:
            print(f"sanjaya: the state of this job cannot be saved: {error!r}", file=sys.stderr)

    def let_go(self) -> None:
        """The process goes on: what was saved is not its state any more, and what was not answered lapses."""
        self._state, self._answered = None, self._control.saves
        if self._file >= 0:
            self._free()
            self._tell(save_fd=-1, save_bytes=0)

    def take_over(self, folder: str) -> None:
        """Wait for this rank's state in the folder, and restore the job from it.

        Raises:
            SystemExit: that is not possible; or the process was asked to leave.
        """
        path = os.path.join(folder, f"state.rank-{self._page.rank}")
        self._tell(ready=True)
        wait_while(lambda: not os.path.exists(path), self._leaving.at_once)
        began = time.perf_counter()
        try:
            self._job.restore(load(path))
            os.remove(path)
        except Exception as error:
            raise SystemExit(f"sanjaya: the state of this job cannot be taken over: {error!r}") from error
        self._tell(restored=True, load_s=time.perf_counter() - began)

    def _save(self, parker: Parker | None) -> None:
        state = self._collected()
        if self._file < 0:
            self._file = os.memfd_create("sanjaya-state", os.MFD_CLOEXEC)
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)
        with self._on_host(parker) as parked, open(self._file, "wb", closefd=False) as file:
            save(state, file, parked)

    def _collected(self) -> Any:
        if self._state is None:
            raise RuntimeError("it was not collected")
        return self._state

    def _on_host(self, parker: Parker | None) -> AbstractContextManager[dict[int, Any]]:
        return nullcontext({}) if parker is None else parker.on_host()

    def _free(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _tell(self, **news: Any) -> None:
        self._told = replace(self._told, **news)
        self._page.handover(self._told)


def wait_while(condition: Callable[[], bool], meanwhile: Callable[[], None]) -> None:
    """Look often at first, then less so: the agent may stop the process altogether."""
    look_s = LOOK_S
    while condition():
        meanwhile()
        time.sleep(look_s)
        look_s = min(LONGEST_LOOK_S, 2 * look_s)
