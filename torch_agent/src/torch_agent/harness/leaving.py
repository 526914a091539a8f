"""When a process is asked to leave (SIGTERM): it does so between two batches, together with the other ranks."""

from __future__ import annotations

import signal
import sys
from types import FrameType

from .gang import group

AGREE_EVERY = 10
"""Ranks of a gang agree on leaving every so many batches: a signal reaches them at different ones."""
WATCHES_WORKERS = "torch.utils.data._utils.signal_handling"
LEFT = 128 + signal.SIGTERM
"""Exit status of who has left."""


class Leaving:
    """Listens to SIGTERM from now on; a handler that the script has set before still hears it, too."""

    def __init__(self) -> None:
        self.asked = False
        """This process was asked to leave."""
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

    def at_once(self) -> None:
        """End the process if it was asked to leave: it has nothing to save yet."""
        if self.asked:
            sys.exit(LEFT)

    def undo(self) -> None:
        """Leave SIGTERM to whom it belonged before."""
        signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)
        if self.asked:
            signal.raise_signal(signal.SIGTERM)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        _let_workers_go()
        if callable(self._before):
            self._before(number, frame)


def _let_workers_go() -> None:
    """The signal ends a DataLoader's workers, too: torch would raise that, wherever the script is at the moment."""
    if getattr(signal.getsignal(signal.SIGCHLD), "__module__", "") == WATCHES_WORKERS:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
