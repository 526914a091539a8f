"""How long an owner is going to wait for its next batch, learned from how long it has waited. Knows nothing of torch.

A loader with n workers serves them in turn, so waits come in a pattern of n: one is long when all workers are slow,
and the next ones are short, because those batches have become ready meanwhile. Each place in that pattern is learned
by itself.
"""

from __future__ import annotations

RECENT = 8
"""Waits of each place that count."""
RANK = RECENT // 4
"""Of these, from the shortest on, the wait that is expected: a quarter of them may be over earlier."""


class Waits:
    """Of one DataLoader after another."""

    def __init__(self) -> None:
        self._places: list[list[float]] = [[]]
        """The recent waits of each place in the pattern, oldest first."""
        self._at = 0

    def pattern(self, length: int) -> None:
        """The loader has so many workers; 0 or 1: its waits have no pattern. What was learned of another is lost."""
        if max(1, length) != len(self._places):
            self._places = [[] for _ in range(max(1, length))]
            self._at = 0

    def begins(self) -> None:
        """The loader begins anew, and so does the pattern."""
        self._at = 0

    def expected_s(self) -> float:
        """Of the wait that begins now; 0 until there are enough to tell."""
        recent = self._places[self._at]
        return sorted(recent)[RANK] if len(recent) >= RECENT // 2 else 0.0

    def took(self, seconds: float) -> None:
        """The wait is over."""
        recent = self._places[self._at]
        recent.append(seconds)
        if len(recent) > RECENT:
            del recent[0]
        self._at = (self._at + 1) % len(self._places)
