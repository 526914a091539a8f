"""Which tasks are on the GPUs of a node, which may come to them, and what each has there.

    orders ──> Task ──┬─ begin ──> GPUs to be looked at ──> the body reads ──> step ──> tasks that leave, come back, end
                      │                                                         │
                      └─ wait: may it go on? <───────────────── states, gangs <──┴──> given ──> the body tells them

All of it goes by a task's `place`: the GPUs that it uses, or, while it stands still, those on which it is to go on.

A GPU without a guest, and without a task whose memory is bounded, is not looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from libs.coordination.actions import AnyAction, Pace, SetLimit, SetShare, Step, Stop, Suspend
from libs.coordination.gangs import Gang, applied, wrote
from libs.coordination.readings import Readings, TaskReading
from libs.coordination.settings import DEFAULTS, Settings
from libs.coordination.state import Coordination, Occupant
from libs.coordination.step import next_s, step
from libs.node.seen import Wait
from libs.node.task import GUEST, Status, Task, Want


def taken(task: Task, active: Collection[Task]) -> Wait | None:
    """Which tasks have not left the task's GPUs yet: they are being stopped or suspended, or were thought lost.

    Of two tasks that have not been launched yet the one goes first that was ordered first. A guest waits for no task
    that goes on, and none waits for it while it does: coordination divides the GPU.

    Args:
        task: it waits for its GPUs.
        active: the node's tasks that have not ended, in the order of their launch orders.

    Returns:
        None: there are none.
    """
    place, before, others = set(task.place), True, list[Task]()
    for other in active:
        before = before and other is not task
        if other is task or place.isdisjoint(other.gpu_indices) or not other.occupies:
            continue
        if other.order.job_id in task.partners or _runs_beside(other, task):
            continue
        if other.order.job_id == task.order.job_id and (task.prepares or other.prepares):
            continue
        if before or other.status is not Status.ACCEPTED:
            others.append(other)
    return _wait({index for other in others for index in other.gpu_indices} & place, others) if others else None


def _wait(gpus: Iterable[int], others: Iterable[Task], *, for_room: bool = False) -> Wait:
    jobs = list(dict.fromkeys(other.order.job_id for other in others))
    return Wait(gpus=sorted(gpus), jobs=jobs, for_room=for_room)


def _runs_beside(other: Task, task: Task) -> bool:
    """Whether one of the two is a guest, and the other is to go on: coordination divides the GPU.

    A task that is to leave is waited for: placement has found that there is no room for both.
    """
    return GUEST in (task.role, other.role) and other.want is Want.RUN


class Allowed(msgspec.Struct, frozen=True, kw_only=True):
    """What a task may have of a GPU from now on."""

    task: Task
    limit_bytes: int | None
    """Of each process's memory; None: unlimited."""
    share_ratio: float
    """Of the GPU's time outside of the owner's gaps."""


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from a look at one GPU."""

    step: Step
    allowed: list[Allowed]
    """Changes, in their order."""
    changed: list[Task]
    """Tasks of which something else is wanted from now on."""


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What a task's processes are to be told."""

    task: Task
    limits: tuple[int | None, ...]
    """Bytes of its process on each of its GPUs; None: unlimited."""
    share_ratio: float


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What the processes of a task were told last."""

    number: int = 0
    """Of the change that says it; 0: they were told nothing yet."""
    limits: Sequence[int | None] = ()
    """Bytes of its process on each of its GPUs; None: unlimited. Of further ones: the smallest; empty: all are."""
    share_ratio: float = 0.0

    def limit_at(self, place: int) -> int | None:
        """Of the process on the GPU with this place among the task's."""
        if place < len(self.limits):
            return self.limits[place]
        return min((limit for limit in self.limits if limit is not None), default=None)


def share_alone(role: str, bound: float | None) -> float:
    """What a task may use of its GPUs' time where coordination gives it nothing: an owner all, a guest its bound."""
    return (bound or 0.0) if role == GUEST else 1.0


class Admission:
    """Of one node. One look after another: `begin`, `step` for each GPU that it names, `come_back`, `given`, `end`."""

    def __init__(self, settings: Settings = DEFAULTS) -> None:
        """No GPU is shared."""
        self._settings = settings
        self._states: dict[int, Coordination] = {}
        """{GPU that is looked at: what is remembered of it}."""
        self._gangs: dict[str, Gang] = {}
        """{task key: what its processes were told}."""
        self._there: list[Task] = []
        """Of the look that was begun last: the tasks that are there,"""
        self._here: dict[int, list[Task]] = {}
        """by their GPUs,"""
        self._coordinated: set[int] = set()
        """and the GPUs that have something to coordinate."""

    def wait(self, task: Task, active: Sequence[Task]) -> Wait | None:
        """Why a task may not begin, or go on, at its place yet; None: it may.

        Args:
            task: it waits for its GPUs.
            active: the node's tasks that have not ended, in the order of their launch orders.
        """
        return taken(task, active) or self._no_room(task, active)

    def _no_room(self, task: Task, active: Sequence[Task]) -> Wait | None:
        """Where the task is one of several, some of them guests, room for it must have been made."""
        missing = [index for index in _shared(task, active) if not self._is_admitted(task, index)]
        beside = [other for other in active if other is not task and other.is_there]
        return (
            _wait(missing, [other for other in beside if set(missing) & set(other.place)], for_room=True)
            if missing
            else None
        )

    def _is_admitted(self, task: Task, index: int) -> bool:
        occupant = self._occupants(task).get(index)
        return occupant is not None and occupant.admitted and not occupant.yielded

    def begin(self, active: Sequence[Task], left: Collection[str] = ()) -> list[int]:
        """Begin a look.

        Args:
            active: the node's tasks that have not ended, in the order of their launch orders.
            left: keys of those that an agent before this one has left with a limit.

        Returns:
            The GPUs that have something to coordinate, or had it before, ascending.
        """
        there = self._there = [task for task in active if task.is_there]
        self._here = {}
        for task in there:
            for index in task.place:
                self._here.setdefault(index, []).append(task)
        keys = {task.key for task in there}
        self._gangs = {key: gang for key, gang in self._gangs.items() if key in keys}
        coordinated = [task for task in there if _is_bounded(task) or task.key in left]
        self._coordinated = {index for task in coordinated for index in task.place}
        return sorted(self._coordinated | self._states.keys())

    def here(self, index: int) -> list[Task]:
        """The tasks that use a GPU, or are to use it as soon as they may."""
        return self._here.get(index, [])

    def state(self, index: int) -> Coordination:
        """What is remembered of a GPU before the next step."""
        return self._states.setdefault(index, Coordination(settings=self._settings))

    def reading(
        self, task: Task, index: int, told: Told, *, applied_number: int = 0, parked: bool = True, **measured: Any
    ) -> TaskReading:
        """What a step of a GPU is shown of a task that is here.

        Args:
            task: it.
            index: of the GPU.
            told: what its processes were told last, perhaps by an agent before this one.
            applied_number: of the newest change that all of its processes on this GPU have applied.
            parked: while it stands still: none of its memory is on the GPU.
            measured: of its processes on this GPU, by the names of `TaskReading`.
        """
        gang = self._gang(task, told)
        return TaskReading(
            job_id=task.order.job_id,
            attempt=task.order.attempt,
            guest=task.role == GUEST,
            begun=task.has_begun,
            starting=task.is_starting,
            leaving=task.want is not Want.RUN,
            stuck=task.yielding and task.stands_still and not parked,
            told_change=told.number,
            told_bytes=told.limit_at(task.place.index(index)),
            told_share_ratio=told.share_ratio,
            applied=applied(gang, index, applied_number),
            memory_bound_bytes=task.memory_bound,
            share_bound_ratio=task.share_bound,
            **measured,
        )

    def _gang(self, task: Task, told: Told) -> Gang:
        """The place changes only while the task stands still: then all that it was told is in force."""
        gang = self._gangs.get(task.key)
        if gang is None or gang.gpus != task.place:
            gang = self._gangs[task.key] = Gang(gpus=task.place, paced=gang is not None and gang.paced)
            wrote(gang, told.number, dict.fromkeys(task.place, told.number) | self._changes(task))
        return gang

    def _occupants(self, task: Task) -> dict[int, Occupant]:
        """{GPU of its place that is looked at: what is known of the task there}."""
        return {
            index: occupant
            for index in task.place
            if (state := self._states.get(index)) is not None
            and (occupant := state.occupants.get(task.key)) is not None
        }

    def _changes(self, task: Task) -> dict[int, int]:
        """{GPU: number of its newest change}."""
        return {index: occupant.change for index, occupant in self._occupants(task).items()}

    def step(self, index: int, readings: Readings, now_s: float) -> Looked:
        """Take one step of a GPU, of which all tasks that are here have been read; changes what is wanted of them.

        Args:
            index: of the GPU.
            readings: of it.
            now_s: by a clock that is never set.
        """
        state = self.state(index)
        result = step(state, readings, now_s)
        by_key = {task.key: task for task in self.here(index)}
        told = dict.fromkeys(action.task for action in result.actions if isinstance(action, SetLimit | SetShare))
        return Looked(
            step=result,
            changed=[by_key[action.task] for action in result.actions if self._act(by_key[action.task], action)],
            allowed=[
                Allowed(
                    task=by_key[key],
                    limit_bytes=state.occupants[key].limit_bytes,
                    share_ratio=self._given_to(by_key[key]).share_ratio,
                )
                for key in told
            ],
        )

    def _act(self, task: Task, action: AnyAction) -> bool:
        """Do what a GPU asks for. Returns whether something else is wanted of the task now."""
        if isinstance(action, Pace):
            self._gangs[task.key].paced |= action.paced
        if isinstance(action, Suspend):
            return _leave(task)
        return isinstance(action, Stop) and _expel(task, action.why)

    def come_back(self) -> list[Task]:
        """Let those go on that were suspended for the sake of an owner, where all of their GPUs have room again.

        After the steps of all GPUs: one of them may not have found out before that the task stands still.
        """
        return [
            task
            for task in self._there
            if task.yielding and not task.has_begun and not self._no_room(task, self._there) and _come_back(task)
        ]

    def is_paced(self, task: Task) -> bool:
        """Whether a task's processes are stopped and continued from outside, because its gates do not hold."""
        gang = self._gangs.get(task.key)
        return gang is not None and gang.paced

    def given(self, gpus: Collection[int]) -> list[Given]:
        """What is to be told after the steps of these GPUs; telling it again is harmless."""
        there = [task for task in self._there if task.key in self._gangs]
        return [self._given_to(task) for task in there if any(index in gpus for index in task.place)]

    def gives(self, key: str) -> bool:
        """Whether a task with this key is given anything; another one has what it would have without coordination."""
        return key in self._gangs

    def _given_to(self, task: Task) -> Given:
        """Of each of its GPUs the limit, and the smallest of their shares."""
        occupants = self._occupants(task)
        limits = {index: occupant.limit_bytes for index, occupant in occupants.items()}
        share_ratio = min((occupant.share_ratio for occupant in occupants.values()), default=1.0)
        return Given(task=task, limits=tuple(limits.get(index) for index in task.place), share_ratio=share_ratio)

    def wrote(self, task: Task, number: int) -> bool:
        """The task's processes can read what is given to it under this number. Returns whether that is news."""
        return wrote(self._gangs[task.key], number, self._changes(task))

    def end(self) -> list[int]:
        """End a look.

        Returns:
            The GPUs that are done with: nothing is to be coordinated there any more, and their owners, if any, have
            applied that they have no limit, and that was told.
        """
        ended = [
            index
            for index in sorted(self._states.keys() - self._coordinated)
            if all(_is_free(each) for each in self._states[index].occupants.values())
        ]
        for index in ended:
            del self._states[index]
        kept = {task.key for task in self._there if any(index in self._states for index in task.place)}
        self._gangs = {key: gang for key, gang in self._gangs.items() if key in kept}
        return ended

    def next_s(self, index: int, now_s: float) -> float | None:
        """When time alone may let a task in to a GPU, or have one leave; None: never. After its step."""
        return next_s(self.state(index), now_s)

    @property
    def rests(self) -> bool:
        """Whether no GPU has anything to coordinate."""
        return not self._states


def _leave(task: Task) -> bool:
    """Have a guest stand still without its memory on the GPU, for the sake of an owner."""
    if task.want is not Want.RUN:
        return False
    task.want, task.yielding = Want.SUSPEND, True
    return True


def _come_back(task: Task) -> bool:
    """Let it go on."""
    task.want, task.yielding = Want.RUN, False
    return True


def _expel(task: Task, why: str) -> bool:
    """End a guest that stands still and keeps memory that an owner needs; its job is not to blame."""
    if task.want is Want.STOP:
        return False
    task.want, task.yielding, task.grace_s, task.expelled = Want.STOP, False, 0.0, why
    return True


def _is_bounded(task: Task) -> bool:
    """Whether its GPUs are coordinated: it is a guest, or an operator has bounded its memory."""
    return task.role == GUEST or task.memory_bound is not None


def _is_free(occupant: Occupant) -> bool:
    told = occupant.reported.limit_bytes
    return occupant.limit_bytes == occupant.seen.memory_bound_bytes == told and not occupant.unconfirmed


def _shared(task: Task, active: Sequence[Task]) -> set[int]:
    """The GPUs where others have to make room for a task: all those of a guest, else those that have a guest."""
    wanted = set(task.place)
    if task.role == GUEST:
        return wanted
    guests = [other for other in active if other is not task and other.role == GUEST and other.is_there]
    return wanted & {index for guest in guests for index in guest.place}
