"""Until when the broker that comes with a cell may start."""

from __future__ import annotations

READY_WITHIN_S = 180.0
"""A process that ends again and again is found out sooner; this is for one that hangs, also on a slow machine."""
FETCHED_WITHIN_S = 900.0
"""Where it is fetched at its first start."""


class StartDeadline:
    """The time in which the broker is fetched is no time that it takes to start, and has a limit of its own."""

    def __init__(self, began_s: float) -> None:
        self._began_s = began_s
        self._ends_s = began_s + READY_WITHIN_S

    def is_over(self, now_s: float, *, fetches: bool) -> bool:
        """Whether to give up now; `fetches`: it is being fetched at this moment."""
        if fetches and now_s < self._began_s + FETCHED_WITHIN_S:
            self._ends_s = now_s + READY_WITHIN_S
        return now_s > self._ends_s
