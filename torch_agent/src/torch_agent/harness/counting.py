"""When a mini-batch is over, from what an unmodified script does. Knows nothing of torch.

The rule: a mini-batch ends at the first safe point after at least one optimizer step.

* Where batches come from a DataLoader, the safe point is the request for the next batch: gradients were
  accumulated, all optimizers have stepped, the graph is gone.
* Without a loader it is the step of the newest optimizer, at the end of its learned run of steps: alternating
  optimizers (a GAN) make one mini-batch together.
* If batches are drawn and gradients computed but no optimizer ever steps (updates written by hand), a batch
  with a backward pass counts by itself.
"""

from __future__ import annotations

from collections.abc import Callable

BATCHES_UNTIL_HANDWRITTEN = 8
"""Batches with a backward pass but without any step, after which updates are taken to be written by hand."""


class Counter:
    """Calls `boundary` once per mini-batch."""

    __slots__ = (
        "_backward",
        "_boundary",
        "_drawn",
        "_handwritten",
        "_last",
        "_learned_run",
        "_optimizers",
        "_pending",
        "_run",
        "_stepless",
        "_stepped",
    )

    def __init__(self, boundary: Callable[[], None]) -> None:
        self._boundary = boundary
        self._pending = False
        """An optimizer has stepped since the last boundary."""
        self._backward = False
        """Gradients were computed since the last batch."""
        self._drawn = False
        """The last batch came from a DataLoader that is not exhausted: it will be asked for the next one."""
        self._stepped = False
        """Some optimizer has stepped since the start."""
        self._stepless = 0
        self._handwritten = False
        self._optimizers: dict[int, None] = {}
        """Ids of the optimizers, in order of their first step."""
        self._last = 0
        self._run = 0
        """Steps in a row of the newest optimizer."""
        self._learned_run = 1

    def batch_requested(self) -> None:
        """A DataLoader is asked for its next batch, on the training thread."""
        if self._pending or (self._handwritten and self._backward):
            self._end()
        elif self._backward and not self._stepped:
            self._stepless += 1
            self._handwritten = self._stepless >= BATCHES_UNTIL_HANDWRITTEN
            self._backward = False

    def batch_drawn(self) -> None:
        """The DataLoader has given a batch."""
        self._drawn = True

    def exhausted(self) -> None:
        """The DataLoader has no more batches."""
        self._drawn = False

    def backward(self) -> None:
        """Gradients are computed."""
        self._backward = True

    def stepped(self, optimizer: int) -> None:
        """An optimizer has stepped (or a gradient scaler has skipped its step)."""
        self._pending = self._stepped = True
        if self._drawn:
            return
        if optimizer not in self._optimizers:
            self._optimizers[optimizer] = None
            self._run, self._learned_run = 0, 1
        newest = next(reversed(self._optimizers))
        if len(self._optimizers) == 1:
            self._end()
        elif optimizer == newest:
            self._run += 1
            if self._run >= self._learned_run:
                self._end()
        elif self._last == newest:
            self._learned_run, self._run = max(1, self._run), 0
        self._last = optimizer

    def finished(self) -> None:
        """The process ends: what has stepped and not been counted is the last mini-batch."""
        if self._pending:
            self._end()

    def _end(self) -> None:
        self._pending = self._backward = False
        self._boundary()
