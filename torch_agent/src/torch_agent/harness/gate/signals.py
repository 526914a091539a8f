"""What an owner's process tells the guests beside it: that it computes, that it waits and until when.

It says so when its script asks a DataLoader for a batch and when it gets it, and when a mini-batch is over. On a
virtual GPU it waits as far as it leaves the processor: a DataLoader without workers makes the batch itself, on the
processor that it shares with its guests, while a GPU would be left alone. A GPU is left alone when it has done what
was launched, which may be later than the script asks (device_time.py). An owner that has not been heard of for 50 ms,
or for two of its mini-batches where these are longer, counts as waiting: before its first step, in phases without
training, and after its death.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import inf
from time import monotonic, thread_time

from ..gpu_page import IDLE_S, GpuPage
from .device_time import SMOOTHING, UNUSUAL, DeviceTime
from .waits import Waits

MEASURED, EVERY = 16, 17
"""So many makings of a batch are measured from the beginning, then one of so many: a measurement takes 0.7 µs."""
PATIENCE = 2.0
"""Usual mini-batches, or makings of a batch, without a word, after which the owner counts as waiting."""


class Signals:
    """Of one owner's process."""

    def __init__(self, pages: Sequence[GpuPage], device: DeviceTime | None) -> None:
        """Of a process that uses these GPUs.

        Args:
            pages: theirs.
            device: what they do by themselves; None: they are virtual, and whatever the process computes takes their
                time.
        """
        self._device = device
        self._waits = Waits()
        self._loads_since_s = self._loads_s = 0.0
        """What the making of a batch takes of the GPU's processor."""
        self._until_measured = 1.0 if device is None else inf
        """Batches until that is measured. Below zero where a loader has failed meanwhile: with the next one."""
        self._measurements = 0
        self._workers = 0
        self._pid = os.getpid()
        self._usual_s = 0.0
        self._patience_s = IDLE_S
        self._waits_since_s = 0.0
        self.closed_minibatches = 0
        """During which no guest was allowed to compute beside this process."""
        self.move(pages)

    def forked(self) -> None:
        """In the child: it speaks for itself."""
        self._pid = os.getpid()

    def move(self, pages: Sequence[GpuPage]) -> None:
        """The process uses these GPUs from now on."""
        self._pages = tuple(pages)
        if self._device is not None:
            self._device.stood_still()
        self._look()

    def _look(self) -> None:
        """Remember which guests may compute outside of gaps."""
        self._guests = [(page, page.guests) for page in self._pages]
        self._beside = any(allowed for _, (allowed, _) in self._guests)

    def waits(self, workers: int) -> None:
        """It asks a DataLoader for its next batch."""
        if workers != self._workers:
            self._workers = workers
            self._waits.pattern(workers)
        now_s = self._waits_since_s = monotonic()
        self._until_measured -= 1
        if self._until_measured <= 0:
            self._loads_since_s = thread_time()
        until_s = now_s + self._waits.expected_s()
        silent_s = IDLE_S + PATIENCE * self._loads_s
        from_s = min(self._device.done_s(now_s), until_s) if self._device is not None else 0.0
        for page in self._pages:
            page.wait_for_data(now_s, until_s, silent_s, from_s)

    def computes(self) -> None:
        """The DataLoader has given a batch, or has none left."""
        now_s = monotonic()
        if self._device is not None:
            self._device.begins(now_s)
        took_s = now_s - self._waits_since_s
        if self._until_measured <= 0:
            self._measured(thread_time() - self._loads_since_s)
        self._waits.took(took_s - self._loads_s if took_s > self._loads_s else 0.0)
        for page in self._pages:
            page.busy(now_s + self._patience_s)

    def _measured(self, loads_s: float) -> None:
        self._measurements += 1
        self._until_measured = 1 if self._measurements < MEASURED else EVERY
        self._loads_s += (SMOOTHING if self._measurements > 1 else 1.0) * (loads_s - self._loads_s)

    def goes_on(self) -> None:
        """It computes gradients, or its optimizer steps. Said only where mini-batches are long."""
        if self._patience_s > IDLE_S:
            until_s = monotonic() + self._patience_s
            for page in self._pages:
                page.busy(until_s)

    def boundary(self, took_s: float) -> None:
        """A mini-batch of this length is over; 0: it was the first."""
        usual_s = self._usual_s
        if took_s:
            took_s = min(took_s, UNUSUAL * usual_s) if usual_s else took_s
            self._usual_s = usual_s = usual_s + SMOOTHING * (took_s - usual_s) if usual_s else took_s
            self._patience_s = max(IDLE_S, PATIENCE * usual_s)
        until_s = monotonic() + self._patience_s
        changed = False
        for page, guests in self._guests:
            page.own(self._pid)
            page.busy(until_s)
            if page.guests != guests:
                changed = True
        if changed:
            self._look()
        elif not self._beside:
            self.closed_minibatches += 1

    def ends(self) -> None:
        """The process ends, or is no owner's any more."""
        for page in self._pages:
            if page.owner_pid == self._pid:
                page.clear()
