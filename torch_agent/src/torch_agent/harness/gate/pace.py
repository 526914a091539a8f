"""A share of the time: how long a guest idles after groups of operations (AntMan, section 3.1.2). Without torch.

Idling t * (1 - s) / s after a group of length t misses the share: every sleep lasts longer than asked, and a script
that waits by itself idles already. So what is owed is kept as a balance: groups add to it, time takes from it at the
rate of the share, and what a sleep overshoots is paid back by the next groups. A balance in the guest's favour is
bounded, so that a guest that has waited long does not keep the GPU to itself afterwards.
"""

from __future__ import annotations

CREDIT_S = 0.01
"""The most that a guest may compute ahead of its share: as long as a group of operations may be."""
QUANTUM_S = 0.0005
"""Idling shorter than this is left for later: a sleep overshoots by about a tenth of it."""


class Pace:
    """Of one process."""

    def __init__(self) -> None:
        self._owed_s = 0.0
        """Computed beyond the share; negative: less than it."""
        self._at_s = 0.0
        self._unchecked_s = 0.0
        """Taken for computing since the processor's clock was asked."""

    def starts(self, now_s: float) -> None:
        """Count from now on: the time since the last call belongs to no share, as that of gaps does not."""
        self._at_s, self._unchecked_s = now_s, 0.0

    def computed(self, now_s: float, share: float) -> None:
        """All the time since the last call was computing, as far as is known.

        Args:
            share: above 0, below 1.
        """
        elapsed_s = now_s - self._at_s
        self._unchecked_s += elapsed_s
        self._owe(elapsed_s * (1.0 - share), now_s)

    def idled(self, now_s: float, share: float) -> None:
        """All the time since the last call was idle."""
        self._owe((self._at_s - now_s) * share, now_s)

    def check(self, processor_s: float) -> None:
        """The processor's clock says how much of what was taken for computing since the last check was that."""
        self._owed_s = max(-CREDIT_S, self._owed_s - max(0.0, self._unchecked_s - processor_s))
        self._unchecked_s = 0.0

    def idle_s(self, share: float) -> float:
        """How long to idle before the next group; 0: not at all."""
        idle_s = self._owed_s / share
        return idle_s if idle_s >= QUANTUM_S else 0.0

    def _owe(self, seconds: float, now_s: float) -> None:
        self._owed_s = max(-CREDIT_S, self._owed_s + seconds)
        self._at_s = now_s
