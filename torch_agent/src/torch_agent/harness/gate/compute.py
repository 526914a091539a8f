"""The part of a process in the sharing of its GPU's time: an owner's signals or a guest's gate, as its role says."""

from __future__ import annotations

import time
from typing import Any

from ..allowance import GUEST
from ..control import ControlReader
from ..gpu_page import GpuPage, own_pages
from ..page import PageWriter
from .depth import GroupsInFlight
from .device_time import DeviceTime
from .entering import Gates
from .gate import Gate
from .signals import Signals


class Compute:
    """Of one process; a forked child goes on with a copy."""

    def __init__(self, torch: Any, folder: str, control: ControlReader) -> None:
        """Begin in the role that the control file says.

        Args:
            torch: the module.
            folder: of the task's pages.
        """
        self._torch, self._folder, self._control = torch, folder, control
        self._pages: list[GpuPage] = []
        self._signals: Signals | None = None
        self._gate: Gate | None = None
        self._gates: Gates | None = None
        self._at_s = 0.0
        self._change = control.change
        self.move()

    def move(self) -> None:
        """The process may be on other GPUs than before: at the start, and when it goes on after it has stood still."""
        self._pages = _mapped(self._folder)
        self._at_s = 0.0
        self._play()

    def _play(self) -> None:
        """Take the role that the control file says."""
        if self._control.allowance.role == GUEST and self._pages:
            self._be_guest()
        else:
            self._be_owner()

    def _be_guest(self) -> None:
        if self._signals is not None:
            self._signals.ends()
            self._signals = None
        if self._gate is None:
            in_flight = GroupsInFlight(self._torch) if self._torch.cuda.is_available() else None
            self._gate = Gate(self._control, self._pages, in_flight)
            self._gates = Gates(self._torch, self._gate)
        self._gate.move(self._pages)

    def _be_owner(self) -> None:
        if self._gates is not None:
            self._gates.remove()
            self._gates = self._gate = None
        if self._signals is None:
            device = DeviceTime(self._torch) if self._torch.cuda.is_available() else None
            self._signals = Signals(self._pages, device)
        self._signals.move(self._pages)

    def forked(self) -> None:
        """In the child: nothing of what the parent has counted is its own."""
        self._at_s = 0.0
        if self._gate is not None:
            self._gate.reset()
        if self._signals is not None:
            self._signals.forked()

    def waits(self, workers: int) -> None:
        """A DataLoader with so many workers is asked for its next batch, on the training thread."""
        if self._signals is not None:
            self._signals.waits(workers)

    def computes(self) -> None:
        """The DataLoader has given a batch, or has none left."""
        if self._signals is not None:
            self._signals.computes()

    def goes_on(self) -> None:
        """Gradients are computed, or an optimizer has stepped."""
        if self._signals is not None:
            self._signals.goes_on()

    def boundary(self, page: PageWriter) -> None:
        """A mini-batch is over: say what the gates have cost, and look whether the role has changed."""
        now_s = time.monotonic()
        took_s, self._at_s = now_s - self._at_s if self._at_s else 0.0, now_s
        if self._gate is not None:
            page.gate(self._gate.passed, self._gate.spacing_p99_s, self._gate.closed_s, took_s, 0)
        if self._signals is not None and self._pages:
            self._signals.boundary(took_s)
            page.gate(0, 0.0, 0.0, took_s, self._signals.closed_minibatches)
        if self._control.change != self._change:
            self._change = self._control.change
            self._play()

    def ends(self) -> None:
        """The process ends."""
        if self._signals is not None:
            self._signals.ends()


def _mapped(folder: str) -> list[GpuPage]:
    """The pages of the GPUs that this process uses; none where an agent has made none."""
    return [GpuPage(path) for path in own_pages(folder)]
