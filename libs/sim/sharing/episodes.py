"""What coordination comes to on one GPU: its own steps over modelled tasks, until nothing changes any more.

Live, coordination takes ten steps a second for as long as two jobs share a GPU. Here it takes them, by the same code
(`libs/coordination`), after something has changed: a task comes, an owner changes its phase. When its limits stand,
speeds are settled, and hold until something changes again. The share that its ledger grants outside of an owner's gaps
depends on the owner's mini-batches and on how strongly guests compete with it, and not on memory: it is the mean over a
while of steps of its own. The same situation comes to the same, so that each is gone through once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from statistics import fmean

from libs.coordination.actions import AnyAction, SetLimit, Stop, Suspend
from libs.coordination.arriving import guests_of, owner_of
from libs.coordination.readings import Readings
from libs.coordination.settings import DEFAULTS
from libs.coordination.state import Coordination, Occupant
from libs.coordination.step import step
from libs.coordination.trading import split_of
from libs.sim.sharing.demands import GIB, Demand
from libs.sim.sharing.speeds import Contended, competition, contended, of_guests, packed
from libs.sim.sharing.tasks import Task

PERIOD_S = DEFAULTS.period_s
QUIET_S = 1.0
"""No limit has changed for so long: memory is settled."""
LONGEST_S = 120.0
"""A stage in which limits do not come to rest ends then."""
CLIMB_S, MEASURED_S = 10.0, 20.0
"""So long shares grow, and so long they are measured after that."""
TRADES_S, TRADE_PERIOD_S = 1200.0, 1.0
"""Guests without an owner trade memory at most once a minute: that is followed for so long, in longer steps."""
Limits = tuple[int | None, ...]


class News(StrEnum):
    """What has changed on the GPU."""

    OWNER = "owner"
    """The owner has come."""
    GUEST = "guest"
    """The last of the guests has come."""
    PHASE = "phase"
    """The owner asks for something else."""
    NONE = "none"
    """A job has left, or guests share a GPU without owner: what is there is settled at once."""


@dataclass(frozen=True)
class Stage:
    """A stretch of time in which speeds stay what they are, each a part of the speed alone."""

    for_s: float
    owner: float
    guests: tuple[float, ...]
    limits: Limits = ()
    """Of the guests' memory."""


@lru_cache(maxsize=16384)
def coordinated(
    capacity_bytes: int, owner: Demand | None, guests: tuple[Demand, ...], news: News, before: Demand | None = None
) -> tuple[Stage, ...]:
    """The stages that follow; the last one has no end.

    Args:
        capacity_bytes: memory of the GPU.
        owner: what the owner asks for; None: there is none.
        guests: what the guests ask for.
        news: what has changed.
        before: what the owner asked for until now, where it has changed its phase.
    """
    if owner is None:
        return (_without_owner(capacity_bytes, guests),)
    if not guests:
        return (Stage(math.inf, 1.0, ()),)
    if news is News.NONE:
        return (_settled(owner, guests, _limits(capacity_bytes, owner, guests)),)
    if before is not None and before.memory_bytes >= owner.memory_bytes:
        # What an owner does not need any more is given back when its peak is forgotten.
        earlier = _settled(owner, guests, _limits(capacity_bytes, before, guests))
        stage = Stage(DEFAULTS.peak_s, earlier.owner, earlier.guests, earlier.limits)
        return (stage, _settled(owner, guests, _limits(capacity_bytes, owner, guests)))
    stages = _Episode(capacity_bytes, owner, guests, news, before).stages()
    return (*stages, _settled(owner, guests, stages[-1].limits))


def _without_owner(capacity_bytes: int, guests: tuple[Demand, ...]) -> Stage:
    """Nothing holds guests back but each other, and what they trade where memory is short."""
    limits: Limits = (None,) * len(guests)
    if len(guests) > 1 and sum(guest.memory_bytes for guest in guests) > capacity_bytes:
        limits = traded(capacity_bytes, guests)
    speeds = packed(guests)
    slower = [guest.speed_with(limit) for guest, limit in zip(guests, limits, strict=True)]
    return Stage(math.inf, 1.0, tuple(round(a * b, 6) for a, b in zip(speeds, slower, strict=True)), limits)


@lru_cache(maxsize=4096)
def traded(capacity_bytes: int, guests: tuple[Demand, ...], for_s: float = TRADES_S) -> Limits:
    """Limits of guests without an owner after they have traded memory on trial for so long."""
    tasks = [Task(f"g{place}", guest=True, demand=demand) for place, demand in enumerate(guests)]
    state, speeds = Coordination(), packed(guests)
    for number in range(round(for_s / TRADE_PERIOD_S)):
        _step(state, capacity_bytes, tasks, number * TRADE_PERIOD_S)
        for task, speed in zip(tasks, speeds, strict=True):
            task.advance(TRADE_PERIOD_S, speed * task.speed_of_memory, gates_open=True)
    assert state.trading is not None, "there are several guests and no owner"
    split = split_of(state.trading)
    return tuple(split[task.key] for task in tasks)


def _settled(owner: Demand, guests: tuple[Demand, ...], limits: Limits) -> Stage:
    """Speeds with these limits, and with the share that the ledger grants in the mean."""
    owner_speed, taken = granted(owner.minibatch_s, owner.busy_ratio, _rounded(competition(owner, guests)))
    speeds = of_guests(owner, guests, taken)
    slower = [guest.speed_with(limit) for guest, limit in zip(guests, limits, strict=True)]
    found = tuple(round(a * b, 6) for a, b in zip(speeds, slower, strict=True))
    return Stage(math.inf, round(owner_speed, 6), found, limits)


@lru_cache(maxsize=4096)
def granted(minibatch_s: float, busy_ratio: float, against: float) -> Contended:
    """What the ledger lets guests have outside of an owner's gaps, and what that costs it: means, once it is even.

    Args:
        minibatch_s: of the owner.
        busy_ratio: of the owner.
        against: how strongly its guests compete with it, by `competition`.
    """
    owner = Demand(minibatch_s, busy_ratio, GIB)
    if not owner.computes or not against:
        return contended(owner, against, 0.0)
    episode = _Episode(16 * GIB, owner, (Demand(0.1, 1.0, GIB, weight=against),), News.NONE, None)
    return episode.contended()


@lru_cache(maxsize=16384)
def _limits(capacity_bytes: int, owner: Demand, guests: tuple[Demand, ...]) -> Limits:
    """What memory guests have once it is settled."""
    return _Episode(capacity_bytes, owner, guests, News.NONE, None).stages()[-1].limits


def _rounded(against: float) -> float:
    """To a power of two: by its target the ledger grants what costs the same, whichever the guests."""
    return 2.0 ** round(math.log2(against)) if against > 0 else 0.0


def _step(state: Coordination, capacity_bytes: int, tasks: Sequence[Task], now_s: float) -> list[AnyAction]:
    """Take a step; what it has asked for."""
    readings = Readings(
        node_id="n", index=0, capacity_bytes=capacity_bytes, tasks=[task.reading() for task in tasks], waiting=False
    )
    taken = step(state, readings, now_s)
    named = {task.key: task for task in tasks}
    for action in taken.actions:
        named[action.task].take(action)
    return taken.actions


def _waits(occupant: Occupant) -> bool:
    """Whether coordination waits for what it sees of the task: no time that passes changes what it is to have."""
    waits = not occupant.unconfirmed and len(occupant.peaks) <= 1
    return waits and not (occupant.guest and (occupant.settled or occupant.share_ratio))


class _Episode:
    """An owner and its guests, step by step."""

    def __init__(
        self, capacity_bytes: int, owner: Demand, guests: tuple[Demand, ...], news: News, before: Demand | None
    ) -> None:
        self._capacity, self._later, self._news = capacity_bytes, owner, news
        self._state, self._number, self._quiet_s = Coordination(), 0, 0.0
        self._owner = Task("owner", guest=False, demand=before or owner, begun=news is not News.OWNER)
        self._guests = [Task(f"g{place}", guest=True, demand=demand) for place, demand in enumerate(guests)]
        self._tasks = [*self._guests, self._owner]
        self._known: dict[tuple[float, bool, tuple[str, ...]], tuple[Contended, list[float]]] = {}
        """Of `_speeds`, while the owner asks for the same."""
        self._seen: tuple[object, ...] | None = None
        """By the last step, where the next ones do nothing while they see the same; None: they may do something."""
        self._since_s = 0.0
        """Since when the first guest and the owner are beside each other: guests are settled some time later."""

    def stages(self) -> tuple[Stage, ...]:
        """What follows, up to where limits are settled."""
        if self._news is News.OWNER:
            self._tasks = self._guests
            self._period()
            self._tasks = [*self._guests, self._owner]
            return (self._stage(lambda: self._owner.begun), self._settle())
        if self._news is News.GUEST:
            self._guests[-1].begun = False
        elif self._news is News.PHASE:
            self._settle()
            self._owner.change_to(self._later)
            self._known.clear()
            self._seen = None
        return (self._settle(),)

    def contended(self) -> Contended:
        """The mean over a while, once shares are even."""
        self._settle()
        for _ in range(round(CLIMB_S / PERIOD_S)):
            self._period()
        found = [self._period() for _ in range(round(MEASURED_S / PERIOD_S))]
        return Contended(fmean(each.owner_speed for each in found), fmean(each.taken for each in found))

    def _settle(self) -> Stage:
        """Until every guest has its part of the memory, and no limit changes any more."""
        self._quiet_s = 0.0
        return self._stage(lambda: self._quiet_s >= QUIET_S and self._is_settled())

    def _is_settled(self) -> bool:
        guests = [self._state.occupants[task.key] for task in self._tasks if task.guest and task.begun]
        return all(guest.settled and not guest.unconfirmed for guest in guests)

    def _stage(self, is_over: Callable[[], bool]) -> Stage:
        """Periods until something holds, and what each task has done meanwhile."""
        began, before = self._number, {task.name: task.work_s for task in self._everything}
        while True:
            self._period()
            took_s = (self._number - began) * PERIOD_S
            if is_over() or took_s >= LONGEST_S:
                break
        speeds = {task.name: round((task.work_s - before[task.name]) / took_s, 6) for task in self._everything}
        guests = tuple(speeds[task.name] for task in self._guests)
        return Stage(
            round(took_s, 6), speeds[self._owner.name], guests, tuple(task.limit_bytes for task in self._guests)
        )

    @property
    def _everything(self) -> list[Task]:
        return [*self._guests, self._owner]

    def _period(self) -> Contended:
        """One step, and what the tasks do until the next."""
        changed = self._coordinate(self._number * PERIOD_S)
        self._quiet_s = 0.0 if changed else self._quiet_s + PERIOD_S
        present = [task for task in self._tasks if task.guest and task.begun]
        share = max((task.share for task in present if task.demand.computes), default=0.0)
        found, speeds = self._speeds(present, share)
        if self._owner_runs:
            speed = found.owner_speed * self._owner.speed_of_memory
            self._owner.advance(PERIOD_S, speed, gates_open=share > 0)
        for task, speed in zip(present, speeds, strict=True):
            task.advance(PERIOD_S, speed * task.speed_of_memory, gates_open=task.share > 0)
        self._number += 1
        return found

    def _coordinate(self, now_s: float) -> bool:
        """Take a step, unless it would do nothing; whether it has changed a limit, or asked a task to leave."""
        owner = self._owner
        seen = (owner.begun, owner.minibatches, *((task.begun, task.applied) for task in self._guests))
        if seen == self._seen and now_s - self._since_s < DEFAULTS.settle_s:
            return False
        actions = _step(self._state, self._capacity, self._tasks, now_s)
        there = owner_of(self._state)
        self._seen = None
        if there is not None and not actions and all(map(_waits, self._state.occupants.values())):
            self._seen = seen
            self._since_s = min(max(there.since_s, guest.since_s) for guest in guests_of(self._state))
        return any(isinstance(action, SetLimit | Suspend | Stop) for action in actions)

    def _speeds(self, present: Sequence[Task], share: float) -> tuple[Contended, list[float]]:
        """What the owner and its guests have: the same as long as the same tasks run with the same share."""
        key = (share, self._owner_runs, tuple(task.name for task in present))
        if key not in self._known:
            demands, owner = [task.demand for task in present], self._owner.demand
            if self._owner_runs:
                found = contended(owner, competition(owner, demands), share)
                self._known[key] = found, of_guests(owner, demands, found.taken)
            else:
                self._known[key] = Contended(0.0, 0.0), packed(demands)
        return self._known[key]

    @property
    def _owner_runs(self) -> bool:
        return self._owner.begun and self._tasks is not self._guests
