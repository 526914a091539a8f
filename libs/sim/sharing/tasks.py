"""A task as its harness would show it: modelled mini-batches, memory and limits."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from libs.coordination.actions import Admit, AnyAction, SetLimit, SetShare, Stop, Suspend
from libs.coordination.readings import TaskReading
from libs.sim.sharing.costs import GROWTH_S_PER_BYTE, SHRINK_S_PER_BYTE
from libs.sim.sharing.demands import Demand

MOST_CHANGES = 8
"""Limits that a task has been told and not applied, of which it remembers the sizes."""


@dataclass
class Task:
    """One task on the GPU, in the middle of what it does."""

    name: str
    guest: bool
    demand: Demand
    begun: bool = True
    share: float = 0.0
    """Of a guest, outside of the owner's gaps; in force."""
    limit_bytes: int | None = None
    """In force."""
    applied: int = 0
    minibatches: int = 0
    closed: int = 0
    done: float = 0.0
    """Mini-batches, with the one in the middle of which it is."""
    last_s: float = 0.0
    """How long the last one took."""
    work_s: float = 0.0
    """How long it would have taken alone for what it has done."""
    closed_s: float = 0.0
    computed_s: float = 0.0
    _since_s: float = 0.0
    """When the mini-batch in the middle of which it is began, counted from the beginning of the period."""
    _stays_closed: bool = True
    """No gate was open during it."""
    _cost_s: float = 0.0
    """Of memory that moves, still to be waited for."""
    _told: list[SetLimit] = field(default_factory=list)
    _host_bytes: int = 0
    """That lay on the host during the last whole mini-batch."""

    @property
    def key(self) -> str:
        """What coordination calls it: the first attempt of a job of this name."""
        return f"{self.name}.1"

    def take(self, action: AnyAction) -> None:
        """Do what coordination asks for; limits wait for the next boundary."""
        if isinstance(action, SetLimit):
            self._told = [*self._told, action][-MOST_CHANGES:]
            if not (self.begun and self.demand.computes):
                self._apply()
        elif isinstance(action, SetShare):
            self.share = action.share_ratio
        elif isinstance(action, Admit):
            self._apply()
            self.begun, self._since_s = True, 0.0
        elif isinstance(action, Suspend | Stop):
            self.begun = False

    @property
    def speed_of_memory(self) -> float:
        """With the limit in force."""
        return self.demand.speed_with(self.limit_bytes)

    def advance(self, seconds: float, speed: float, *, gates_open: bool) -> None:
        """Go on for so long, so fast.

        Args:
            seconds: the length of the period.
            speed: as a part of the speed alone.
            gates_open: of guests, outside of gaps.
        """
        if not self.begun:
            return
        if not self.demand.computes:
            self.work_s += seconds * speed
            return
        self.computed_s += seconds * speed * self.demand.busy_ratio
        waited_s = min(seconds, self._cost_s)
        self._cost_s -= waited_s
        left_s, rate = seconds - waited_s, speed / self.demand.minibatch_s
        self.work_s += left_s * speed
        self._stays_closed = self._stays_closed and not gates_open
        self.done += left_s * rate
        ended = math.floor(self.done + 1e-9) - self.minibatches
        if not ended or rate <= 0:
            self._since_s -= seconds
            return
        last_end_s = seconds - (self.done - self.minibatches - ended) / rate
        self.last_s = (last_end_s - self._since_s) if ended == 1 else 1.0 / rate
        self.minibatches += ended
        self.closed += ended if self._stays_closed else 0
        self._host_bytes = max(0, self.demand.memory_bytes - self._limit())
        self._since_s, self._stays_closed = last_end_s - seconds, not gates_open
        self._apply()

    def _apply(self) -> None:
        """The boundary of a mini-batch: what was told is in force."""
        if not self._told:
            return
        before = min(self._limit(), self.demand.memory_bytes)
        self.limit_bytes, self.applied = self._told[-1].limit_bytes, self._told[-1].change
        self._told = []
        moved = min(self._limit(), self.demand.memory_bytes) - before
        self._cost_s += moved * GROWTH_S_PER_BYTE.value if moved > 0 else -moved * SHRINK_S_PER_BYTE.value

    def _limit(self) -> int:
        return self.demand.memory_bytes if self.limit_bytes is None else self.limit_bytes

    def change_to(self, demand: Demand) -> None:
        """Another phase begins: with a new mini-batch."""
        self.demand, self.done, self._since_s, self._host_bytes = demand, float(self.minibatches), 0.0, 0
        if not demand.computes and self._told:
            self._apply()

    def reading(self) -> TaskReading:
        """What coordination sees of it."""
        wanted = self.demand.memory_bytes if self.begun else 0
        device = min(wanted, self._limit()) if self.begun else 0
        host = self._host_bytes if self.begun and self.demand.computes else 0
        return TaskReading(
            job_id=self.name,
            attempt=1,
            guest=self.guest,
            begun=self.begun,
            applied=self.applied,
            told_change=self.applied,
            told_bytes=self.limit_bytes,
            told_share_ratio=self.share,
            device_bytes=device,
            host_bytes=wanted - device,
            minibatch_host_bytes=host,
            demand_bytes=wanted,
            minibatches=self.minibatches,
            last_minibatch_s=self.last_s,
            closed_minibatches=self.closed,
            closed_s=self.closed_s,
            computed_s=self.computed_s,
            peak_bytes=0,
        )
