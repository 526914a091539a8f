"""The future: what happens when, on the virtual clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from libs.contracts.envelope import whole_microseconds

Action = Callable[..., None]


class Agenda:
    """A clock that jumps from one planned action to the next. Equal times in the order of planning."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._planned: list[tuple[float, int, bool, Action, tuple[Any, ...]]] = []
        self._number = 0
        self._awaited = 0

    @property
    def next_s(self) -> float | None:
        """When the next action is due; None when nothing is planned."""
        return self._planned[0][0] if self._planned else None

    @property
    def awaited(self) -> int:
        """How many actions are planned that a run must not end before."""
        return self._awaited

    def at(self, time_s: float, action: Action, *args: Any, awaited: bool = True) -> None:
        """Plan an action.

        Args:
            time_s: when; a time that has passed means now. Rounded to whole microseconds, as times on the log are.
            awaited: False for what must not keep a run alive: what goes on for ever (random crashes), what may
                never come.
        """
        due_s = max(self.now_s, whole_microseconds(time_s))
        heapq.heappush(self._planned, (due_s, self._number, awaited, action, args))
        self._number += 1
        self._awaited += awaited

    def after(self, delay_s: float, action: Action, *args: Any) -> None:
        """Plan an awaited action `delay_s` from now."""
        self.at(self.now_s + delay_s, action, *args)

    def advance_to(self, time_s: float) -> None:
        """Move the clock forward, never back."""
        self.now_s = max(self.now_s, time_s)

    def do_next(self) -> None:
        """Jump to the next action and do it.

        Raises:
            IndexError: nothing is planned.
        """
        due_s, _, awaited, action, args = heapq.heappop(self._planned)
        self._awaited -= awaited
        self.advance_to(due_s)
        action(*args)
