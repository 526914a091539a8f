"""What is written at each boundary: the count, the pace, the loss, the memory."""

from __future__ import annotations

import math
import os
import time
from typing import Any

from .gang import group_size, place
from .page import PageWriter
from .rhythm import Rhythm

SMOOTHING = 0.05
"""Weight of the newest mini-batch in the mean time."""
CPU_LOOK_S, CUDA_LOOK_S = 0.1, 1.0
"""How often loss and memory are looked at. On CUDA reading a loss waits for the GPU."""

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Recorder:
    """Of one process; made anew after a fork."""

    def __init__(self, torch: Any, folder: str) -> None:
        self._torch, self._folder = torch, folder
        self._cuda = torch.cuda.is_available()
        self._look_every_s = CUDA_LOOK_S if self._cuda else CPU_LOOK_S
        self._page: PageWriter | None = None
        self.last_loss: Any = None
        """The last scalar that gradients were computed of, detached."""
        self._total = 0
        self._at = 0.0
        self._boundary_s = 0.0
        """Seconds since the epoch: when the last boundary was."""
        self._mean_s = 0.0
        self._looked_at = 0.0
        self._loss = float("nan")
        self._peak = self._least = 0
        self._rhythm = Rhythm()
        self._nonfinite = self._signs = 0
        self._met = 0
        """How many ranks had met at the last boundary; 0 before the first."""

    @property
    def page(self) -> PageWriter:
        """Made when it is first needed: ranks may not know of each other before."""
        if self._page is None:
            self._page = PageWriter(self._folder, *place())
            self._write(self._page)
        return self._page

    def boundary(self) -> int:
        """A mini-batch is over. Returns how many are."""
        now = time.perf_counter()
        if self._total:
            elapsed_s = now - self._at
            self._mean_s = elapsed_s if self._total == 1 else self._mean_s + SMOOTHING * (elapsed_s - self._mean_s)
            self._rhythm.took(elapsed_s)
        self._total += 1
        self._at, self._boundary_s = now, time.time()
        if not self._cuda:  # there, each loss would have to be waited for
            self._note_loss()
        if now - self._looked_at >= self._look_every_s:
            self._look(now)
        self._write(self.page)
        if self._met < 2 and (met := group_size()) != self._met:
            self._met = met
            self.page.met(met)
        return self._total

    def sign(self) -> None:
        """The script goes on, whatever it does."""
        self._signs += 1
        if self._page is not None:
            self._page.sign(self._signs)

    def needed(self, most_bytes: int) -> None:
        """A mini-batch has had so much of a GPU's memory in use. Under a limit that is counted afresh for each."""
        if self._cuda:
            self._peak = max(self._peak, most_bytes)

    def has_stood_still(self) -> None:
        """The time since the boundary does not belong to the next mini-batch."""
        self._at = time.perf_counter()

    def finish(self) -> None:
        """The process ends: leave the newest loss and memory."""
        if self._page is not None:
            self._look(self._at)
            self._write(self._page)

    def _write(self, page: PageWriter) -> None:
        page.write(self._total, self._boundary_s, self._mean_s, self._loss, self._peak, self._least)

    def _look(self, now: float) -> None:
        self._looked_at = now
        self._note_loss()
        self.page.rhythm(self._rhythm.p99_s(), self._nonfinite)
        current, peak = self._cuda_memory() if self._cuda else self._host_memory()
        self._peak = max(self._peak, peak)
        self._least = min(self._least or current, current)

    def _note_loss(self) -> None:
        """Each loss counts once: a mini-batch without a backward pass says nothing of it."""
        if self.last_loss is None:
            return
        self._loss, self.last_loss = float(self.last_loss), None
        self._nonfinite = 0 if math.isfinite(self._loss) else self._nonfinite + 1

    def _cuda_memory(self) -> tuple[int, int]:
        cuda = self._torch.cuda
        if not cuda.is_initialized():
            return 0, 0
        return cuda.memory_allocated(), cuda.max_memory_allocated()

    def _host_memory(self) -> tuple[int, int]:
        with open("/proc/self/statm", "rb") as file:
            resident = int(file.read().split()[1]) * _PAGE_BYTES
        return resident, resident
