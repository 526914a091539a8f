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
        self._seen: object = None
        """By the last look, which asked for nothing."""
        self.next_s: float | None = None
        """When the passing of time alone calls for a look; None: never."""

    def wait(self, task: Task, active: Sequence[Task]) -> Wait | None:
        """Why a task may not begin, or go on, yet."""
        return self._admission.wait(task, active)

    def begins_with(self, task: Task) -> Told:
        """What the processes of a task find when they are launched."""
        share_ratio = share_alone(task.role, task.share_bound)
        return self._given.get(task.key) or _told_first((), share_ratio)

    def look(self, active: Sequence[Task], now_s: float) -> list[Task]:
        """Look until nothing more is asked for.

        Args:
            active: the node's tasks that have not ended, in the order of their launch orders.
            now_s: the virtual time.

        Returns:
            Tasks of which something else is wanted now.
        """
        shared = any(task.role == GUEST or task.memory_bound is not None for task in active)
        if not (shared or self._given or self._left()) and self._admission.rests:
            return []
        changed: list[Task] = []
        while self._is_news(active, now_s):
            changed += self._look(active, now_s)
        return changed

    def _left(self) -> list[str]:
        """Keys of the tasks that an agent before this one has left with a limit."""
        return [key for key, each in self._processes.items() if each.is_limited and key not in self._given]

    def _is_news(self, active: Sequence[Task], now_s: float) -> bool:
        seen = [(*_news_of(task), *_news_of_processes(self._processes.get(task.key))) for task in active]
        if seen == self._seen and (self.next_s is None or now_s < self.next_s):
            return False
        self._seen = seen
        return True

    def _look(self, active: Sequence[Task], now_s: float) -> list[Task]:
        admission, changed, acted = self._admission, list[Task](), False
        for index in admission.begin(active, self._left()):
            readings = Readings(
                node_id=self._server.node_id,
                index=index,
                capacity_bytes=self._server.memory_bytes,
                tasks=[self._reading(task, index) for task in admission.here(index)],
            )
            looked = admission.step(index, readings, now_s)
            changed += looked.changed
            acted = acted or bool(looked.step.actions)
        changed += admission.come_back()
        given = admission.given()
        self._given |= {each.task.key: _told_first(each.limits, each.share_ratio) for each in given}
        numbers = {task.key: self._keep(task) for task in active if task.status is not Status.ACCEPTED}
        for each in given:
            if each.task.key in numbers:
                acted |= admission.wrote(each.task, numbers[each.task.key])
        admission.end()
        self._given = {task.key: self._given[task.key] for task in active if task.key in self._given}
        next_s = admission.next_s(now_s)
        self.next_s = None if next_s is None else max(next_s, now_s + MOMENT_S)
        if acted:
            self._seen = None
        return changed

    def _reading(self, task: Task, index: int) -> TaskReading:
        processes = self._processes.get(task.key)
        if processes is None:
            return self._admission.reading(task, index, Told())
        told = processes.told
        return self._admission.reading(task, index, told, applied_number=processes.applied, parked=processes.is_parked)

    def _keep(self, task: Task) -> int:
        """Have a task that has begun keep to what it is given. Returns the number of the change that says it."""
        processes = self._processes[task.key]
        given = self._given.get(task.key)
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
