"""Is the owner of a GPU slowed down by its guests? (AntMan, OSDI'20, section 5.3)

Two rules. The paper's: a mini-batch takes more than 10 ms longer than alone; lenient where mini-batches are short. The
relative one: more than 3 % beyond the scatter of those alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

ABSOLUTE_S = 0.010
"""The paper's rule (section 5.3, table 5)."""
RELATIVE_RATIO = 0.03
SCATTERS = 2.0
"""Standard deviations within which a single profile may lie without having been slowed down."""
SCATTER_OF_MAD = 1.4826
"""The standard deviation of normally distributed values, in units of their median absolute deviation."""


@dataclass(frozen=True)
class Slowdown:
    """A mini-batch beside guests, compared with those alone."""

    alone_s: float
    """Median time of a mini-batch alone."""
    beside_s: float
    tolerated_s: float
    """Excess up to which the relative rule sees no slowdown."""

    @property
    def excess_s(self) -> float:
        """How much longer it takes beside guests; negative where it takes less time."""
        return self.beside_s - self.alone_s

    @property
    def excess_ratio(self) -> float:
        """`excess_s` as a part of `alone_s`."""
        return self.excess_s / self.alone_s

    @property
    def by_absolute_rule(self) -> bool:
        """Whether the paper's rule counts it."""
        return self.excess_s > ABSOLUTE_S

    @property
    def by_relative_rule(self) -> bool:
        """Whether the relative rule counts it."""
        return self.excess_s > self.tolerated_s


def slowdown(alone_s: Sequence[float], beside_s: float) -> Slowdown:
    """Compare a mini-batch beside guests with those alone.

    Args:
        alone_s: times of mini-batches alone, one per profile; at least one, positive.
        beside_s: time of a mini-batch beside guests.
    """
    usual_s = median(alone_s)
    scatter_s = SCATTER_OF_MAD * median(abs(each - usual_s) for each in alone_s)
    return Slowdown(usual_s, beside_s, RELATIVE_RATIO * usual_s + SCATTERS * scatter_s)
