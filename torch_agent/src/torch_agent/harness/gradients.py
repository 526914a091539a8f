"""Whether gradients wait for an optimizer's step: then the parameters alone are not all that was learned."""

from __future__ import annotations

from typing import Any


class Gradients:
    """Of one process; told by listening.py."""

    def __init__(self) -> None:
        self.outstanding = False
        """A backward pass since the last step: they are being accumulated."""
        self.steps = 0
        """Of all optimizers, with those that gradient scalers have skipped."""

    def stepped(self, optimizer: Any) -> None:
        """After `optimizer.step()`."""
        self.steps += 1
        self.outstanding = False

    def backward(self, loss: Any) -> None:
        """Before `loss.backward()`."""
        self.outstanding = True
