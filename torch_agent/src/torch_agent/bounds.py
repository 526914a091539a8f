"""Tasks kept to the CPUs and the memory that they asked for, by what any process may do: pin, and look.

A task that asks for CPUs gets some for itself, which all of its processes share; the others share those that no task
has for itself, or all where none is left. A task that asks for memory is looked at, and ended when it has more.

A virtual GPU may have a CPU. What trains there runs on that one, of owners and guests alike: so they share its time, as
they would a GPU's, and it is their gates that divide it, not the kernel. Whatever else belongs to a task, such as the
workers of its loaders and what is imported before the first mini-batch, would run on the host and does not count.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from libs.contracts.placement import LaunchTask
from libs.kernel.words import bytes_of
from libs.node.task import Status, Task, task_key
from torch_agent.coordinating.readings import pages_on
from torch_agent.folders import TaskFolder
from torch_agent.pages import living_pages
from torch_agent.processes import Looks, Table, resident_bytes

log = logging.getLogger(__name__)

LOOK_S = 0.5
"""How often memory is looked at: what is taken faster is not seen before.

Two looks in a row have to find too much: processes are read one after another, and what they begin to share meanwhile
counts twice.
"""


class Bounds:
    """What the tasks of a node may use of its host."""

    def __init__(self, cpus: Sequence[int], gpu_cpus: Mapping[int, int], looks: Looks | None = None) -> None:
        """Nothing is pinned until a task asks for CPUs, or trains on a GPU that has one.

        Args:
            cpus: what tasks may use together.
            gpu_cpus: {virtual GPU: its CPU}, of those that have one.
            looks: at all processes, shared with other parts of the agent; None: its own.
        """
        self._cpus, self._looks = frozenset(cpus), looks or Looks()
        self._gpu_cpus = {index: frozenset([cpu]) for index, cpu in gpu_cpus.items()}
        self._own: dict[str, frozenset[int]] = {}
        """{task key: the CPUs that it has for itself}."""
        self._pinned: dict[str, frozenset[int]] = {}
        """{task key: the CPUs that its processes were pinned to last}."""
        self._heavy: frozenset[str] = frozenset()
        """Keys of the tasks that had too much memory at the last look."""

    def begins(self, order: LaunchTask) -> list[int]:
        """The CPUs that a task is to begin on; none: as this process."""
        if order.cpus is not None:
            key = task_key(order.job_id, order.attempt)
            self._own[key] = self._chosen(order, order.packed_with)
            return sorted(self._own[key])
        return sorted(self._shared()) if self._own else []

    def look(self, tasks: Sequence[tuple[Task, TaskFolder]]) -> None:
        """Pin what is not pinned as it should be, and end what has too much memory.

        Args:
            tasks: those that have not ended.
        """
        asking = {task.key: (task, folder) for task, folder in tasks if task.order.cpus and task.occupies}
        self._own = {key: cpus for key, cpus in self._own.items() if key in asking}
        begun = {key: asked for key, asked in asking.items() if asked[0].status is not Status.ACCEPTED}
        # Tasks that an earlier agent has pinned keep their CPUs, before any are given to others.
        for key, (task, folder) in begun.items():
            if key not in self._own and (cpus := self._found(task.order, folder)) is not None:
                self._own[key] = cpus
        # One that goes on has too few for as long as others are on their way out.
        for key, (task, _) in begun.items():
            if len(self._own.get(key, ())) < self._wanted(task.order):
                self._own[key] = self._chosen(task.order, task.partners)
        if self._own or self._pinned or self._gpu_cpus:
            self._pin(tasks)
        self._weigh([(task, folder) for task, folder in tasks if task.order.memory_bytes is not None and task.runs])

    def _weigh(self, tasks: Sequence[tuple[Task, TaskFolder]]) -> None:
        """End what has had too much memory at two looks in a row."""
        heavy = {}
        for task, folder in tasks:
            if (why := self._excess(task.order, folder)) is not None:
                heavy[task.key] = folder, why
        for key in self._heavy & heavy.keys():
            folder, why = heavy[key]
            log.warning("%s is ended: %s", key, why)
            folder.end_for_memory(why)
        self._heavy = frozenset(heavy)

    def _excess(self, order: LaunchTask, folder: TaskFolder) -> str | None:
        """How much more memory the task's processes have than it asked for, as a sentence; None: they have not."""
        each_bytes, gpus = order.memory_bytes or 0, len(order.gpu_indices)
        asked = each_bytes * gpus
        used = _used_bytes(folder, self._looks.recent(), asked)
        if used <= asked:
            return None
        each = f" ({bytes_of(each_bytes)} for each of {gpus} GPUs)" if gpus > 1 else ""
        return f"its processes had {bytes_of(used)} of the host's memory; it asked for {bytes_of(asked)}{each}"

    def _wanted(self, order: LaunchTask) -> int:
        return min(len(self._cpus), (order.cpus or 0) * len(order.gpu_indices))

    def _found(self, order: LaunchTask, folder: TaskFolder) -> frozenset[int] | None:
        """What the task's first process is pinned to, if that is what it asked for, and no other has it."""
        taken = frozenset[int]().union(*self._own.values())
        for pid in folder.ranks()[:1]:
            with suppress(OSError):
                cpus = frozenset(os.sched_getaffinity(pid))
                if len(cpus) == self._wanted(order) < len(self._cpus) and not cpus & taken:
                    return cpus
        return None

    def _chosen(self, order: LaunchTask, partners: Sequence[str]) -> frozenset[int]:
        """The first that no task has; those of jobs that share its GPUs, or of its own earlier attempt, come before."""
        sharing = (order.job_id, *partners)
        beside = [cpus for key, cpus in self._own.items() if key.rpartition(".")[0] in sharing]
        shared = sorted(frozenset[int]().union(*beside))
        free = self._cpus.difference(*self._own.values())
        of_gpus = frozenset[int]().union(*self._gpu_cpus.values())
        in_turn = [*shared, *sorted(free - of_gpus), *sorted(free & of_gpus)]
        return frozenset(in_turn[: self._wanted(order)]) or self._cpus

    def _shared(self) -> frozenset[int]:
        """Those of tasks that ask for none."""
        return self._cpus.difference(*self._own.values()) or self._cpus

    def _pin(self, tasks: Sequence[tuple[Task, TaskFolder]]) -> None:
        before, self._pinned = self._pinned, {}
        shared = self._shared()
        for task, folder in tasks:
            cpus = self._own.get(task.key, shared)
            ours = {*self._gpu_cpus.values(), *([before[task.key]] if task.key in before else [])}
            training = self._training(task, folder) if task.key not in self._own else {}
            pin(set(folder.processes(self._looks.recent())) - training.keys(), cpus, ours)
            for pid, own in training.items():
                pin([pid], own & shared or shared, ours)
            if cpus != self._cpus:
                self._pinned[task.key] = cpus

    def _training(self, task: Task, folder: TaskFolder) -> dict[int, frozenset[int]]:
        """{process: the CPU of its GPU}, of those that have begun to train on GPUs that have one."""
        indices = [index for index in task.gpu_indices if index in self._gpu_cpus]
        living = living_pages(folder.pages) if indices else []
        return {page.pid: self._gpu_cpus[index] for index in indices for page in pages_on(task, index, living)}


def _used_bytes(folder: TaskFolder, table: Table, most_bytes: int) -> int:
    """What the task's processes have of the host's memory; exact only where it is more than so much."""
    if (cgroup := folder.cgroup) is not None and (counted := cgroup.memory_bytes()) is not None:
        return counted
    pids = folder.processes(table)
    # What processes share counts for each of them in the first figure, which costs little; the second is exact.
    used = sum(resident_bytes(pid, shared=True) for pid in pids)
    return used if used <= most_bytes else sum(resident_bytes(pid, shared=False) for pid in pids)


def pin(pids: Iterable[int], cpus: frozenset[int], ours: Collection[frozenset[int]]) -> None:
    """Have all threads of these processes run on these CPUs alone.

    A thread that its program has pinned to some of them keeps that.

    Args:
        ours: what they may have been pinned to by this, or have taken over from a process that was.
    """
    for pid in pids:
        with suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                with suppress(OSError):  # it has ended
                    now = frozenset(os.sched_getaffinity(int(thread.name)))
                    if now != cpus and (now in ours or not now <= cpus):
                        os.sched_setaffinity(int(thread.name), cpus)
