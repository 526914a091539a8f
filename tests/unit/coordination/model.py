"""A small model of tasks that share a GPU: they do mini-batches, apply limits between these, and disturb each other."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from libs.contracts.base import Event
from libs.coordination.actions import Admit, Pace, SetLimit, SetShare, Stop, Suspend
from libs.coordination.readings import Readings, TaskReading
from libs.coordination.settings import DEFAULTS, Settings
from libs.coordination.state import Coordination
from libs.coordination.step import step

GB = 1 << 30
CAPACITY = 32 * GB
STEP_S = 0.1


@dataclass
class Job:
    """A task of the model. Times are those of a mini-batch that has the GPU and all its memory."""

    name: str
    guest: bool = True
    minibatch_s: Callable[[float], float] = lambda now_s: 0.1
    wanted: Callable[[int], int] = lambda number: 0
    """Bytes that its mini-batch of this number wants."""
    slowed_by_guests: float = 0.0
    """By so many times its own time its mini-batches take longer while gates are wide open."""
    slowed_by_host: Callable[[float], float] = lambda missing: 1.0 + missing
    """By how much its mini-batches take longer when this part of what they want lies on the host."""
    noise: float = 0.03
    outliers: float = 0.02
    host_room: int | None = None
    """So much of its memory has room on the host; the rest stays on the GPU whatever the limit. None: all has."""
    listens: bool = True
    """It applies changes at its boundaries."""
    memory_bound: int | None = None
    share_bound: float | None = None
    unread: bool = False
    """Its page cannot be read."""
    begun: bool = False
    limit: int | None = None
    share: float = 0.0
    told: list[SetLimit] = field(default_factory=list)
    applied: int = 0
    done: int = 0
    closed: int = 0
    took_s: float = 0.0
    host: int = 0
    demand: int = 0
    left_s: float = 0.0
    began_s: float = 0.0
    was_opened: bool = False
    host_at_start: int = 0
    suspended: bool = False
    lost_s: float = 0.0
    """Of its time, to guests."""

    @property
    def task(self) -> str:
        return f"{self.name}.1"

    @property
    def limit_bytes(self) -> int:
        return CAPACITY if self.limit is None else self.limit

    @property
    def may_have(self) -> int:
        """Bytes that it may have on the GPU: by its limit, or because they have no room elsewhere."""
        return max(self.limit_bytes, self.wanted(self.done) - self.host_at_start)

    def reading(self) -> TaskReading:
        if self.unread:
            return TaskReading(
                job_id=self.name,
                attempt=1,
                guest=self.guest,
                begun=self.begun,
                unread=True,
                limited=False,
                gated=False,
                told_change=self.told[-1].change if self.told else 0,
                told_bytes=self.told[-1].limit_bytes if self.told else None,
                told_share_ratio=self.share,
            )
        on_host = self.host_at_start if self.begun else 0
        wanted = self.wanted(self.done) if self.begun else 0
        return TaskReading(
            job_id=self.name,
            attempt=1,
            guest=self.guest,
            begun=self.begun,
            told_change=self.told[-1].change if self.told else 0,
            told_bytes=self.told[-1].limit_bytes if self.told else None,
            told_share_ratio=self.share,
            applied=self.applied,
            device_bytes=wanted - on_host,
            host_bytes=on_host,
            minibatch_host_bytes=self.host,
            demand_bytes=self.demand,
            minibatches=self.done,
            last_minibatch_s=self.took_s,
            closed_minibatches=self.closed,
            memory_bound_bytes=self.memory_bound,
            share_bound_ratio=self.share_bound,
        )


class Gpu:
    """Runs the coordinator beside the jobs."""

    def __init__(self, *jobs: Job, seed: int = 1, settings: Settings = DEFAULTS) -> None:
        self.state = Coordination(settings=settings)
        self.jobs = list(jobs)
        self.now_s = 0.0
        self.facts: list[tuple[float, Event]] = []
        self.open_guests = 0
        self.suspended: list[str] = []
        self._random = random.Random(seed)

    def of(self, *kinds: type[Event]) -> list[Event]:
        """The facts of these types."""
        return [fact for _, fact in self.facts if isinstance(fact, kinds)]

    def readings(self) -> Readings:
        tasks = [job.reading() for job in self.jobs]
        return Readings(node_id="n1", index=0, capacity_bytes=CAPACITY, tasks=tasks)

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP_S)):
            self.coordinate()
            for job in self.jobs:
                if job.begun:
                    self._advance(job)
            self.now_s = round(self.now_s + STEP_S, 6)

    def coordinate(self) -> None:
        self._leave()
        result = step(self.state, self.readings(), self.now_s)
        by_task = {job.task: job for job in self.jobs}
        for action in result.actions:
            job = by_task[action.task]
            if isinstance(action, SetLimit):
                job.told.append(action)
            elif isinstance(action, SetShare):
                job.share = action.share_ratio
            elif isinstance(action, Admit):
                self._begin(job)
            elif isinstance(action, Suspend):
                job.suspended = True
                self.suspended.append(job.name)
            else:
                assert isinstance(action, Pace | Stop)
        self.open_guests = result.open_guests
        self.facts += [(self.now_s, fact) for fact in result.facts]
        shared = any(job.guest and job.begun for job in self.jobs)
        assert self.in_force() <= CAPACITY or not shared, f"at {self.now_s} s limits in force exceed the capacity"

    def in_force(self) -> int:
        """Sum of what processes may have at this moment."""
        return sum(job.may_have for job in self.jobs if job.begun)

    def _leave(self) -> None:
        for job in self.jobs:
            if job.suspended:
                job.begun = job.suspended = False

    def _begin(self, job: Job) -> None:
        job.begun = True
        self._apply(job)
        self._start_minibatch(job, self.now_s)

    def _apply(self, job: Job) -> None:
        if job.told:
            job.limit, job.applied = job.told[-1].limit_bytes, job.told[-1].change

    def _start_minibatch(self, job: Job, at_s: float) -> None:
        jitter = self._random.gauss(1.0, job.noise) * (3.0 if self._random.random() < job.outliers else 1.0)
        wanted = job.wanted(job.done)
        beyond = max(0, wanted - job.limit_bytes)
        job.host_at_start = beyond if job.host_room is None else min(beyond, job.host_room)
        slow = job.slowed_by_host(job.host_at_start / wanted) if wanted else 1.0
        job.left_s, job.began_s = job.minibatch_s(at_s) * max(0.1, jitter) * slow, at_s
        job.was_opened = False

    def _advance(self, job: Job) -> None:
        opened = max((other.share for other in self.jobs if other.guest and other.begun), default=0.0)
        speed = job.share if job.guest else 1.0 / (1.0 + job.slowed_by_guests * opened)
        at_s, end_s = self.now_s, self.now_s + STEP_S
        while speed > 0 and at_s + job.left_s / speed <= end_s:
            at_s += job.left_s / speed
            job.was_opened = job.was_opened or opened > 0
            self._end_minibatch(job, at_s)
        job.left_s -= (end_s - at_s) * speed
        job.lost_s += 0.0 if job.guest else STEP_S * (1.0 - speed)
        job.was_opened = job.was_opened or opened > 0

    def _end_minibatch(self, job: Job, at_s: float) -> None:
        job.took_s, job.demand, job.host = at_s - job.began_s, job.wanted(job.done), job.host_at_start
        job.closed += not job.was_opened
        job.done += 1
        if job.listens:
            self._apply(job)
        self._start_minibatch(job, at_s)
