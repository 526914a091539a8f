"""How far apart gates are: the longest group of operations that no gate interrupts. Knows nothing of torch.

A histogram of even steps, which costs a gate a third of what rhythm.py's would.
"""

from __future__ import annotations

STEP_S, STEPS = 1e-4, 512
"""The last step has all that is longer, from 51 ms on."""


class Spacing:
    """Of one process."""

    def __init__(self) -> None:
        self._counts = [0] * STEPS
        self._total = 0

    def took(self, seconds: float) -> None:
        """One more group."""
        self._counts[min(int(seconds / STEP_S), STEPS - 1)] += 1
        self._total += 1

    def p99_s(self) -> float:
        """Seconds within which 99 of 100 groups were over, to a tenth of a millisecond; 0 before the first."""
        left = self._total // 100
        for place in range(STEPS - 1, -1, -1):
            left -= self._counts[place]
            if left < 0:
                return (place + 1) * STEP_S
        return 0.0
