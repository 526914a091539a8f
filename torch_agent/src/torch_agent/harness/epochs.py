"""The mean loss of each epoch, as a script's DataLoader and its backward passes show it.

An epoch ends when the loader whose batches are trained on has no more of them. It is told when the script goes on
training (or the process ends): until then the script may report a loss of its own, which counts in its place.
"""

from __future__ import annotations

import os
from typing import Any

from .reporting import REPORTER, Reporter

LOSS_METRIC = "SANJAYA_LOSS_METRIC"
"""Name of the metric that is the loss, in the environment of a job whose losses are followed."""
EPOCH_LOSSES = "SANJAYA_EPOCH_LOSSES"
"""There where the losses of epochs are to be told by this module."""


class EpochLosses:
    """Of one process."""

    def __init__(self, metric: str, *, tells: bool) -> None:
        """`tells`: whether to report them; else they are only known here."""
        self._metric, self._tells = metric, tells
        self._reporter = Reporter()
        self.done = 0
        """Epochs that are over."""
        self._sum: Any = 0.0
        self._losses = 0
        self._drawn = self._trained = 0
        """Which loader the last batch came from, and the last one before a backward pass."""
        self._mean: Any = None
        self._untold = False

    def drawn(self, loader: object) -> None:
        """A loader has given a batch."""
        self._drawn = id(loader)

    def backward(self, loss: Any) -> None:
        """Gradients are computed of this one number; it is not waited for."""
        self.tell()
        self._trained = self._drawn
        self._sum = self._sum + loss
        self._losses += 1

    def exhausted(self, loader: object) -> None:
        """A loader has no more batches."""
        if self._losses and id(loader) == self._trained:
            self._mean, self._sum, self._losses = self._sum / self._losses, 0.0, 0
            self.done += 1
            self._untold = True

    def tell(self) -> None:
        """Report the epoch that is over, if there is one and the script has reported no loss of its own."""
        if self._untold:
            self._untold = False
            if self._tells and REPORTER.latest(self._metric) is None:
                self._reporter.report(self.done, **{self._metric: float(self._mean)})

    def latest(self) -> float | None:
        """The loss of the last epoch that is over: the script's own where it reports one; None: there is none."""
        told = REPORTER.latest(self._metric)
        if told is not None or self._mean is None:
            return told
        return float(self._mean)


def followed() -> EpochLosses | None:
    """As the agent wants it of this process; None: nothing is asked for."""
    metric = os.environ.get(LOSS_METRIC)
    return EpochLosses(metric, tells=EPOCH_LOSSES in os.environ) if metric else None
