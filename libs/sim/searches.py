"""What came of sweeps: a fold over the control log that runs along with a simulation."""

from __future__ import annotations

from typing import Any

import msgspec

from libs.contracts.agent import MetricsReported
from libs.contracts.base import Event
from libs.contracts.gateway import SweepArrived
from libs.contracts.searching import Objective
from libs.contracts.sweeps import SweepEnded, TrialEnded, TrialPruned, TrialStarted


class Search(msgspec.Struct):
    """One sweep so far. Times on the virtual clock."""

    objective: Objective
    arrived_s: float
    ended_s: float | None = None
    outcome: str = ""
    best_value: float | None = None
    pruned: int = 0
    completed: int = 0
    best_so_far: list[tuple[float, float]] = []
    """(Seconds since arrival, value), whenever a report was better than all before."""

    def takes(self, value: float, time_s: float) -> None:
        """A trial has reported."""
        best = self.best_so_far[-1][1] if self.best_so_far else None
        if best is None or (value > best if self.objective.maximize else value < best):
            self.best_so_far.append((time_s - self.arrived_s, value))


class Searches:
    """Folds the control log."""

    def __init__(self) -> None:
        self.sweeps: dict[str, Search] = {}
        self._sweep_of: dict[str, Search] = {}
        """{job id of a trial: its sweep}"""
        self._handlers: dict[type[Event], Any] = {
            SweepArrived: self._arrived,
            TrialStarted: self._started,
            MetricsReported: self._reported,
            TrialPruned: self._pruned,
            TrialEnded: self._completed,
            SweepEnded: self._ended,
        }

    def take(self, event: Event, time_s: float) -> None:
        """The next event of the log."""
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event, time_s)

    def _arrived(self, event: SweepArrived, time_s: float) -> None:
        self.sweeps[event.sweep_id] = Search(event.spec.objective, time_s)

    def _started(self, event: TrialStarted, time_s: float) -> None:
        self._sweep_of[event.job_id] = self.sweeps[event.sweep_id]

    def _reported(self, event: MetricsReported, time_s: float) -> None:
        search = self._sweep_of.get(event.job_id)
        if search is not None and search.objective.metric in event.values:
            search.takes(event.values[search.objective.metric], time_s)

    def _pruned(self, event: TrialPruned, time_s: float) -> None:
        self.sweeps[event.sweep_id].pruned += 1

    def _completed(self, event: TrialEnded, time_s: float) -> None:
        self.sweeps[event.sweep_id].completed += event.outcome == "completed"

    def _ended(self, event: SweepEnded, time_s: float) -> None:
        search = self.sweeps[event.sweep_id]
        search.ended_s, search.outcome, search.best_value = time_s, event.outcome, event.best_value

    def rows(self) -> list[dict[str, Any]]:
        """As they stand in a result."""
        return [
            {
                "sweep_id": sweep_id,
                "outcome": search.outcome or "unfinished",
                "took_s": None if search.ended_s is None else search.ended_s - search.arrived_s,
                "best_value": search.best_value,
                "pruned": search.pruned,
                "completed": search.completed,
                "best_so_far": [list(point) for point in search.best_so_far],
            }
            for sweep_id, search in self.sweeps.items()
        ]
