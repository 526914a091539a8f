"""How far expected starts were from the starts that came."""

from __future__ import annotations

from collections import deque
from statistics import median

import msgspec

REMEMBERED = 500
"""Errors that are kept, the latest ones."""
MOST_OF_ONE = 20
"""Expectations that are kept of one job, the latest ones."""
SHORTEST_S = 1.0
"""Waits that are shorter count as this long: of them no error in parts of the wait says anything."""


class Errors(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the error so far, as parts of the waits that came."""

    expectations: int = 0
    """Expectations of which the start has come; at most the latest 500."""
    median_ratio: float | None = None
    """Half of them were off by less; None: none has come yet."""
    p90_ratio: float | None = None


class Track:
    """What was said of jobs that wait, until they start."""

    def __init__(self) -> None:
        self._said: dict[str, deque[tuple[float, float]]] = {}
        self._errors: deque[float] = deque(maxlen=REMEMBERED)

    def said(self, job_id: str, now_s: float, at_s: float) -> None:
        """It was said at `now_s` that the job is expected to start at `at_s`."""
        self._said.setdefault(job_id, deque(maxlen=MOST_OF_ONE)).append((now_s, at_s))

    def started(self, job_id: str, time_s: float) -> None:
        """The job has started."""
        for now_s, at_s in self._said.pop(job_id, ()):
            self._errors.append(abs(at_s - time_s) / max(SHORTEST_S, time_s - now_s))

    def ended(self, job_id: str) -> None:
        """The job will not start."""
        self._said.pop(job_id, None)

    @property
    def errors(self) -> Errors:
        """So far."""
        if not self._errors:
            return Errors()
        ascending = sorted(self._errors)
        p90 = ascending[min(len(ascending) - 1, len(ascending) * 9 // 10)]
        return Errors(expectations=len(ascending), median_ratio=median(ascending), p90_ratio=p90)
