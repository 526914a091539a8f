"""How long mini-batches take, nearly all of them: the time that 99 of 100 keep to."""

from __future__ import annotations

import math

SHORTEST_S, GROWTH, BUCKETS = 1e-4, 1.1, 200
"""Bucket n has the times up to SHORTEST_S * GROWTH ** n; the last one ends at about five hours."""
_LOG_GROWTH = math.log(GROWTH)


class Rhythm:
    """A histogram with buckets of a tenth's difference: the answer is too long by a tenth at most."""

    def __init__(self) -> None:
        self._counts = [0] * BUCKETS
        self._total = 0

    def took(self, seconds: float) -> None:
        """One more mini-batch."""
        place = math.ceil(math.log(seconds / SHORTEST_S) / _LOG_GROWTH) if seconds > SHORTEST_S else 0
        self._counts[min(place, BUCKETS - 1)] += 1
        self._total += 1

    def p99_s(self) -> float:
        """Seconds within which 99 of 100 mini-batches were over; 0 before the first."""
        left = self._total // 100
        for place in range(BUCKETS - 1, -1, -1):
            left -= self._counts[place]
            if left < 0:
                return SHORTEST_S * GROWTH**place
        return 0.0
