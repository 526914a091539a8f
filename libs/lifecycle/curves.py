"""How a job's loss falls from epoch to epoch: how good it has become, since when, and what that has cost.

The quantities of the Philly study's figure 9 (ATC'19, section 4.2): the epoch of the lowest loss, the first epoch
within 0.1 % of it, and the GPU time after that.
"""

from __future__ import annotations

import msgspec

WITHIN = 0.001
"""The study's: a loss so near to the lowest one is as good as that."""


class Epoch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One epoch's loss."""

    epoch: float
    """As the script counts."""
    loss: float
    gpu_s: float
    """GPU seconds of the job until its end."""


class Curve(msgspec.Struct, kw_only=True):
    """The losses of one job, as far as they can still matter."""

    epochs: int = 0
    """So many were taken."""
    last: Epoch | None = None
    lows: list[Epoch] = []
    """Those that were lower than all before and are within the ratio of the lowest, which is the last of them: at most
    a few, because a loss that falls far makes the earlier ones fall out."""
    improved: Epoch | None = None
    """The latest that was lower by more than the ratio than the one that was here before it."""

    @property
    def best(self) -> Epoch | None:
        """The lowest loss; of equal ones the first."""
        return self.lows[-1] if self.lows else None

    @property
    def near_best(self) -> Epoch | None:
        """The first epoch within the ratio of the lowest loss."""
        return self.lows[0] if self.lows else None

    @property
    def unimproved(self) -> float:
        """Epochs since the last improvement."""
        if self.last is None or self.improved is None:
            return 0.0
        return self.last.epoch - self.improved.epoch


def take(curve: Curve, epoch: Epoch, ratio: float = WITHIN) -> Curve:
    """The curve with one more epoch.

    Args:
        curve: of the epochs before; it may be changed.
        epoch: an epoch that was taken before changes nothing. One below it begins the curve anew: the script has begun
            again.
        ratio: part of a loss; losses may be negative, so it is taken of their size.

    Returns:
        The curve to go on with.
    """
    if curve.last is not None and epoch.epoch == curve.last.epoch:
        return curve
    if curve.last is not None and epoch.epoch < curve.last.epoch:
        curve = Curve()
    curve.epochs += 1
    curve.last = epoch
    if curve.best is None or epoch.loss < curve.best.loss:
        enough = epoch.loss + ratio * abs(epoch.loss)
        curve.lows = [*(low for low in curve.lows if low.loss <= enough), epoch]
    if curve.improved is None or epoch.loss < curve.improved.loss - ratio * abs(curve.improved.loss):
        curve.improved = epoch
    return curve
