"""The admission of a simulated node's tasks to its GPUs: steps of coordination, without the time that they take.

A live agent takes ten steps a second. Here they are taken when something has changed, or time alone may change
something, until they ask for nothing more. What tasks are told reaches their processes; what these need of memory and
how fast they are is modelled elsewhere (`libs/sim/sharing/`), and what coordination says of it is not on the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from libs.coordination.readings import Readings, TaskReading
from libs.node.admission import Admission, Told, share_alone
from libs.node.seen import Wait
from libs.node.task import GUEST, Status, Task
from libs.sim.clusters import Server
from libs.sim.processes import Processes

MOMENT_S = 1e-6
"""Between two looks that time alone calls for."""


class Admitting:
    """Of one agent, from its start to its end."""

    def __init__(self, server: Server, processes: Mapping[str, Processes]) -> None:
        """Nothing was looked at yet.

        Args:
            server: the node.
            processes: of its tasks, by their keys; those of tasks that have not been launched are missing.
        """
        self._server, self._processes = server, processes
        self._admission = Admission()
        self._given: dict[str, Told] = {}
        """{task key: what this agent gives the task}."""
        self._before: dict[str, tuple[object, ...]] = {}
        """What the last look saw of all tasks."""
        self._seen: dict[int, object] = {}
        """{GPU: what the last look at it saw, which asked for nothing}."""
        self._due: dict[int, float | None] = {}
        """{GPU that is looked at: when the passing of time alone calls for a look; None: never}."""

    @property
    def next_s(self) -> float | None:
        """When the passing of time alone calls for a look; None: never."""
        return min((due_s for due_s in self._due.values() if due_s is not None), default=None)

    def wait(self, task: Task, active: Sequence[Task]) -> Wait | None:
        """Why a task may not begin, or go on, yet."""
        return self._admission.wait(task, active)

    def begins_with(self, task: Task) -> Told:
        """What the processes of a task find when they are launched."""
        share_ratio = share_alone(task.role, task.share_bound)
        return self._given.get(task.key) or _told_first((), share_ratio)

    def look(self, tasks: Mapping[str, Task], now_s: float) -> list[Task]:
        """Look until nothing more is asked for.

        Args:
            tasks: {key: task} of those that have not ended, in the order of their launch orders.
            now_s: the virtual time.

        Returns:
            Tasks of which something else is wanted now.
        """
        if self._news(tasks) == self._before and not self._is_due(now_s):
            return []
        active, changed, goes_on = list(tasks.values()), list[Task](), True
        shared = any(task.role == GUEST or task.memory_bound is not None for task in active)
        restrained = any(each.is_limited or each.told.share_ratio < 1.0 for each in self._processes.values())
        if not (shared or restrained or self._given) and self._admission.rests:
            return []
        while goes_on:
            self._before = self._news(tasks)
            gpus = self._steps(active, now_s, changed)
            changed += self._admission.come_back()
            self._tell(tasks, gpus)
            goes_on = bool(gpus)
        return changed

    def _news(self, tasks: Mapping[str, Task]) -> dict[str, tuple[object, ...]]:
        """{task key: all of it that coordination goes by}."""
        return {key: (*_news_of(task), *_news_of_processes(self._processes.get(key))) for key, task in tasks.items()}

    def _is_due(self, now_s: float) -> bool:
        return any(due_s is not None and due_s <= now_s for due_s in self._due.values())

    def _left(self) -> list[str]:
        """Keys of the tasks that an agent before this one has left with a limit."""
        return [key for key, each in self._processes.items() if each.is_limited and key not in self._given]

    def _steps(self, active: Sequence[Task], now_s: float, changed: list[Task]) -> list[int]:
        """A step of each GPU of which there is news: of others it would ask for nothing. Returns these GPUs."""
        admission, stepped = self._admission, list[int]()
        for index in admission.begin(active, self._left()):
            here, due_s = admission.here(index), self._due.get(index)
            seen = [(key := task.key, *self._before[key]) for task in here]
            if seen == self._seen.get(index) and (due_s is None or now_s < due_s):
                continue
            readings = Readings(
                node_id=self._server.node_id,
                index=index,
                capacity_bytes=self._server.memory_bytes,
                tasks=[self._reading(task, index) for task in here],
            )
            looked = admission.step(index, readings, now_s)
            changed += looked.changed
            stepped.append(index)
            self._seen[index] = None if looked.step.actions else seen
            next_s = admission.next_s(index, now_s)
            self._due[index] = None if next_s is None else max(next_s, now_s + MOMENT_S)
        return stepped

    def _tell(self, tasks: Mapping[str, Task], stepped: Sequence[int]) -> None:
        admission = self._admission
        given = admission.given(stepped)
        for index in admission.end():
            self._due.pop(index, None)
            self._seen.pop(index, None)
        now = {each.task.key: _told_first(each.limits, each.share_ratio) for each in given}
        self._given = {key: each for key, each in (self._given | now).items() if admission.gives(key)}
        numbers = {key: self._keep(key, task) for key, task in tasks.items() if task.status is not Status.ACCEPTED}
        for each in given:
            key = each.task.key
            if key in numbers and admission.gives(key) and admission.wrote(each.task, numbers[key]):
                self._seen |= dict.fromkeys(each.task.place)

    def _reading(self, task: Task, index: int) -> TaskReading:
        processes = self._processes.get(task.key)
        if processes is None:
            return self._admission.reading(task, index, Told())
        told = processes.told
        return self._admission.reading(task, index, told, applied_number=processes.applied, parked=processes.is_parked)

    def _keep(self, key: str, task: Task) -> int:
        """Have a task that has begun keep to what it is given. Returns the number of the change that says it."""
        processes = self._processes[key]
        given = self._given.get(key)
        limits = processes.told.limits if given is None else given.limits
        share_ratio = share_alone(task.role, task.share_bound) if given is None else given.share_ratio
        return processes.tell(limits, share_ratio)


def _told_first(limits: Sequence[int | None], share_ratio: float) -> Told:
    return Told(number=1, limits=limits, share_ratio=share_ratio)


def _news_of(task: Task) -> tuple[object, ...]:
    """All of a task that coordination goes by."""
    bounds = task.memory_bound, task.share_bound
    return (
        task.key,
        task.role,
        task.status,
        task.want,
        task.place,
        task.launched,
        task.has_begun,
        task.yielding,
        *bounds,
    )


def _news_of_processes(processes: Processes | None) -> tuple[object, ...]:
    return () if processes is None else (processes.told.number, processes.applied, processes.is_parked)
