"""When a process is asked to leave (SIGTERM): it does so between two batches, together with the other ranks.

One that stands still does so where it stands, without its memory: no line of its script runs any more.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

from .gang import group

AGREE_EVERY = 10
"""Ranks of a gang agree on leaving every so many batches: a signal reaches them at different ones."""
LOADERS = "torch.utils.data._utils"
"""What torch's DataLoaders share; not every script has it."""
LEFT = 128 + signal.SIGTERM
"""Exit status of a process that has left."""


class WorkersEnded(RuntimeError):
    """The signal has ended a DataLoader's workers, too: the batch that one of them was sending may never be whole."""


class Leaving:
    """Listens to SIGTERM from now on; a handler that the script has set before still hears it, too."""

    def __init__(self) -> None:
        self.asked = False
        """This process was asked to leave."""
        self._waits_for_workers = False
        self._before = signal.signal(signal.SIGTERM, self._ask)

    def agreed(self, number: int) -> bool:
        """Whether to leave now: on a gang, when any rank was asked to.

        Args:
            number: of batches, or of the like, that all ranks count equally.
        """
        distributed = group()
        if distributed is None:
            return self.asked
        if number % AGREE_EVERY:
            return False
        import torch

        device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
        asked = torch.tensor([float(self.asked)], device=device)
        distributed.all_reduce(asked, op=distributed.ReduceOp.MAX)
        return bool(asked.item())

    @contextmanager
    def drawing_from(self, batches: Any) -> Iterator[None]:
        """While the next one is drawn.

        Args:
            batches: a DataLoader with workers that were made before the signal, or anything else.

        Raises:
            WorkersEnded: it has workers, and the signal comes or has come.
        """
        try:
            self._waits_for_workers = getattr(batches, "num_workers", 0) > 0
            if self.asked and self._waits_for_workers:
                raise WorkersEnded
            yield
        finally:
            self._waits_for_workers = False

    def at_once(self) -> None:
        """End the process if it was asked to leave: it has nothing to save yet."""
        if self.asked:
            self.leave()

    def leave(self) -> NoReturn:
        """End the process, as one that the signal ends.

        As Python ends, torch asks workers no more to do so: it would wait for a lock that one of them had as it died.
        """
        if LOADERS in sys.modules:
            vars(sys.modules[LOADERS])["python_exit_status"] = True
        sys.exit(LEFT)

    def undo(self) -> None:
        """Give SIGTERM back to its handler of before."""
        signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)
        if self.asked:
            signal.raise_signal(signal.SIGTERM)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        _let_workers_go()
        if callable(self._before):
            self._before(number, frame)
        if self._waits_for_workers:
            self._waits_for_workers = False
            raise WorkersEnded


class StandingStill:
    """Listens to SIGTERM in the place of the script while the process stands still; a context manager.

    The script's own handler would find tensors without memory. It hears a signal that came meanwhile when the process
    goes on. Python handles signals on its main thread alone: on another one nothing is listened to here.
    """

    def __init__(self) -> None:
        self.asked = False
        """The signal has come since."""
        self._before: Any = None
        """None: the handler is no business of Python's, or this is not the main thread."""

    def __enter__(self) -> StandingStill:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.getsignal(signal.SIGTERM)
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)
        if self.asked and kind is None:  # else the memory may not be back
            signal.raise_signal(signal.SIGTERM)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        _let_workers_go()


def end_here() -> NoReturn:
    """End the process at once: neither handlers nor `finally` of the script run; its tensors may have no memory."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(LEFT)


def _let_workers_go() -> None:
    """The signal ends a DataLoader's workers, too: torch would raise that, wherever the script is at the moment."""
    if getattr(signal.getsignal(signal.SIGCHLD), "__module__", "") == f"{LOADERS}.signal_handling":
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
