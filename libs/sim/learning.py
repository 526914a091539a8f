"""What simulated jobs report of themselves: learning curves."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from libs.contracts.jobs import JobSpec


@dataclass(frozen=True, kw_only=True)
class LearningCurve:
    """A Weibull curve with noise: value(step) = limit - (limit - first) exp(-rate (step - 1)^bend).

    One of the shapes of Domhan et al. (IJCAI'15), and none of those that a sweep fits to it.
    """

    metric: str
    reports: int
    """Spread evenly over the job's work; the steps are 1, 2, …"""
    first: float
    """The value at step 1."""
    limit: float
    """What the value tends to."""
    rate: float
    """How quickly, per step^bend."""
    bend: float
    """Below 1: quick at first, then slow."""
    noise: float = 0.0
    """Standard deviation of what is added to each report."""

    def value(self, step: int, luck: random.Random) -> float:
        """What is reported at a step."""
        missing = (self.limit - self.first) * math.exp(-self.rate * math.pow(step - 1, self.bend))
        return self.limit - missing + luck.gauss(0.0, self.noise)

    def done_at(self, step: int, total: float) -> float:
        """How much of `total` is done when the step is reported: the last report comes a little before the end."""
        return total * step / (self.reports + 0.5)


Surface = Callable[[JobSpec], LearningCurve | None]
"""How a job with these parameters learns; None: it reports nothing."""


def no_surface(spec: JobSpec) -> LearningCurve | None:
    """No job reports anything."""
    return None
