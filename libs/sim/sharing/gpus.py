"""GPUs of a simulated cell that jobs share: which are there, what each asks for, how fast each is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from libs.sim.agenda import Agenda
from libs.sim.sharing.beside import Beside
from libs.sim.sharing.demands import Demand
from libs.sim.sharing.episodes import News, Stage, coordinated
from libs.sim.sharing.speeds import packed
from libs.sim.sharing.usage import Usage

Gpu = tuple[str, int]
"""Node id and index."""
Key = tuple[str, int]
"""Job id and attempt."""


class Present(NamedTuple):
    """A job that makes progress on a GPU."""

    key: Key
    guest: bool
    demand: Demand


@dataclass
class _State:
    """Of one GPU."""

    capacity_bytes: int
    present: tuple[Present, ...] = ()
    owner: Key | None = None
    guests: tuple[Key, ...] = ()
    """In the order of the stages' speeds."""
    stages: tuple[Stage, ...] = ()
    since_s: float = 0.0
    turn: int = 0
    kept: dict[Key, int] = field(default_factory=dict)
    """Of `UMEM`: memory that each has taken,"""
    asked: dict[Key, int] = field(default_factory=dict)
    """and the most that it has asked for: what it did not get then, it does not get later."""
    lacking: dict[Key, int] = field(default_factory=dict)
    """Of `PACK`: bytes that jobs wanted last and did not get."""

    def speed(self, key: Key) -> float:
        """Of the job, as a part of its speed alone."""
        if not self.stages:
            return 1.0
        stage = self.stages[0]
        return stage.owner if key == self.owner else stage.guests[self.guests.index(key)]


class SharedGpus:
    """All GPUs of a cell."""

    def __init__(
        self, agenda: Agenda, beside: Beside, felt: Callable[[Gpu], None], seen: Callable[[Gpu], None]
    ) -> None:
        """Nothing runs.

        Args:
            agenda: of the run.
            beside: how jobs are kept from each other.
            felt: called when speeds on a GPU have changed although its jobs have not.
            seen: called when the GPU is used differently from now on.
        """
        self._agenda, self._beside, self._felt, self._seen = agenda, beside, felt, seen
        self._gpus: dict[Gpu, _State] = {}
        self.usage = Usage()

    def look(self, gpu: Gpu, capacity_bytes: int, present: Sequence[Present]) -> None:
        """These jobs make progress on the GPU from now on, in the order of their coming."""
        state = self._gpus.setdefault(gpu, _State(capacity_bytes))
        now = tuple(present)
        if now == state.present:
            return
        self._account(state)
        before, state.present = state.present, now
        state.turn += 1
        state.stages = self._stages(state, before)
        state.lacking = _lacking(state, before) if self._beside is Beside.PACK else {}
        self._begin_stage(gpu, state)

    def speed(self, gpu: Gpu, key: Key) -> float:
        """Of a job that is there, as a part of its speed alone."""
        return self._gpus[gpu].speed(key)

    def lacks_memory(self, gpu: Gpu, key: Key) -> int:
        """Bytes that the job does not get and cannot do without; it is the one that fails, not those before it."""
        return self._gpus[gpu].lacking.get(key, 0)

    def busy(self, gpu: Gpu) -> float:
        """The part of its time in which the GPU computes now."""
        state = self._gpus[gpu]
        return min(1.0, sum(each.demand.busy_ratio * state.speed(each.key) for each in state.present))

    def memory_bytes(self, gpu: Gpu) -> int:
        """In use now."""
        state = self._gpus[gpu]
        return min(state.capacity_bytes, sum(_on_gpu(state, each) for each in state.present))

    def jobs(self, gpu: Gpu) -> tuple[Key, ...]:
        """The jobs that make progress there."""
        return tuple(each.key for each in self._gpus[gpu].present)

    def close(self) -> Usage:
        """The usage up to now."""
        for state in self._gpus.values():
            self._account(state)
        return self.usage

    def _begin_stage(self, gpu: Gpu, state: _State) -> None:
        state.since_s = self._agenda.now_s
        self._seen(gpu)
        if state.stages and state.stages[0].for_s < math.inf:
            due_s = self._agenda.now_s + state.stages[0].for_s
            # Not awaited: the jobs are, and when they have ended, nothing more follows.
            self._agenda.at(due_s, self._next_stage, gpu, state.turn, awaited=False)

    def _next_stage(self, gpu: Gpu, turn: int) -> None:
        state = self._gpus[gpu]
        if state.turn != turn:
            return
        self._account(state)
        state.stages = state.stages[1:]
        self._begin_stage(gpu, state)
        self._felt(gpu)

    def _stages(self, state: _State, before: tuple[Present, ...]) -> tuple[Stage, ...]:
        """What follows from the tasks that are there, and from those that were there before."""
        was = {each.key: each for each in before}
        owner = next((each for each in state.present if not each.guest), None)
        guests = [each for each in state.present if each is not owner]
        guests.sort(key=lambda each: each.key not in was)
        state.owner = owner.key if owner is not None else None
        state.guests = tuple(each.key for each in guests)
        if not state.present:
            return ()
        owners = sum(not each.guest for each in state.present)
        if self._beside is not Beside.ANTMAN or owners > 1:
            return (self._unguarded(state, [*([owner] if owner is not None else []), *guests]),)
        demands = tuple(each.demand for each in guests)
        news, earlier = _news(owner, guests, was)
        return coordinated(state.capacity_bytes, owner.demand if owner is not None else None, demands, news, earlier)

    def _unguarded(self, state: _State, present: Sequence[Present]) -> Stage:
        """Jobs that nothing holds back; under `UMEM` those that came first keep the memory that they have."""
        speeds = packed([each.demand for each in present])
        there = {each.key for each in present}
        state.kept = {key: kept for key, kept in state.kept.items() if key in there}
        state.asked = {key: asked for key, asked in state.asked.items() if key in there}
        for place, each in enumerate(present if self._beside is Beside.UMEM else ()):
            wanted, left = each.demand.memory_bytes, state.capacity_bytes - sum(state.kept.values())
            if wanted > state.asked.get(each.key, -1):
                state.kept[each.key] = min(state.kept.get(each.key, 0) + left, wanted)
                state.asked[each.key] = wanted
            speeds[place] *= each.demand.speed_with(state.kept[each.key])
        with_owner = state.owner is not None
        guests = speeds[1:] if with_owner else speeds
        limits = tuple(state.kept.get(key) for key in state.guests)
        return Stage(math.inf, speeds[0] if with_owner else 1.0, tuple(guests), limits)

    def _account(self, state: _State) -> None:
        """What the time since the last change adds to the usage of the run."""
        now_s = self._agenda.now_s
        seconds, state.since_s = now_s - state.since_s, now_s
        if seconds <= 0 or not state.present:
            return
        busy = sum(each.demand.busy_ratio * state.speed(each.key) for each in state.present)
        memory = sum(_on_gpu(state, each) for each in state.present) / state.capacity_bytes
        speeds = [state.speed(key) for key in state.guests]
        self.usage.add(seconds, busy, memory, state.owner is not None, speeds)
        if state.owner is not None and speeds:
            demand = next(each.demand for each in state.present if each.key == state.owner)
            if demand.computes:
                minibatch_s, speed = demand.minibatch_s, state.speed(state.owner)
                self.usage.add_beside(state.owner[0], minibatch_s, seconds, speed)


def _lacking(state: _State, before: tuple[Present, ...]) -> dict[Key, int]:
    """The jobs that have come, or want more, where the memory is not enough."""
    missing = sum(each.demand.memory_bytes for each in state.present) - state.capacity_bytes
    if missing <= 0 or len(state.present) < 2:
        return {}
    had = {each.key: each.demand.memory_bytes for each in before}
    return {each.key: missing for each in state.present if each.demand.memory_bytes > had.get(each.key, 0)}


def _on_gpu(state: _State, each: Present) -> int:
    """Its memory there, with the limit that is in force."""
    if each.key == state.owner or not state.stages or not state.stages[0].limits:
        return min(each.demand.memory_bytes, state.capacity_bytes)
    limit = state.stages[0].limits[state.guests.index(each.key)]
    return each.demand.memory_bytes if limit is None else min(each.demand.memory_bytes, limit)


def _news(owner: Present | None, guests: Sequence[Present], was: dict[Key, Present]) -> tuple[News, Demand | None]:
    """What has changed, and what the owner asked for before."""
    if owner is None or not guests:
        return News.NONE, None
    earlier = was.get(owner.key)
    if earlier is None:
        return News.OWNER, None
    if guests[-1].key not in was:
        return News.GUEST, None
    if earlier.demand != owner.demand:
        return News.PHASE, earlier.demand
    return News.NONE, None
