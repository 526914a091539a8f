"""Which queued jobs are to begin on which over-subscribed domains: Gandiva's Algorithm 1 without free GPUs."""

from __future__ import annotations

from collections.abc import Collection
from heapq import heapify, heappop, heappush, heappushpop, heapreplace

from services.placement.core.cell import Cell
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.queue import AllInOrder
from services.placement.core.lifecycle.suspending.domains import up_to_date
from services.placement.core.mechanisms.slicing.heights import Alike, Heights, Ranked
from services.placement.core.mechanisms.slicing.memory import Memory
from services.placement.core.promises import lacks_memory


class _Level:
    """Domains of one kind and affinity while jobs are assigned to them.

    What is assigned is not there yet: the ranking of the domains stays as it is, those that were chosen are ranked
    beside it.
    """

    def __init__(self, affinity: int, gpus: int, limit: float, ranked: Ranked) -> None:
        self.affinity, self.gpus, self.limit = affinity, gpus, limit
        self.least = ranked[0]
        """(load, name) of the domain with the least."""
        self._ranked, self._next = ranked, 1
        self._raised: Ranked = []
        """Those that were chosen, a heap."""

    def raise_least(self, width: int) -> None:
        """A job of so many GPUs is to begin on the domain with the least load."""
        load, name = self.least
        if self._next < len(self._ranked):
            heappush(self._raised, (load + width, name))
            if self._ranked[self._next] < self._raised[0]:
                self.least = self._ranked[self._next]
                self._next += 1
            else:
                self.least = heappop(self._raised)
        else:
            self.least = heappushpop(self._raised, (load + width, name))


_Choices = list[tuple[bool, float, str, int]]
"""(whether the affinity is another one, height, name, place of its level) of the first domain of each level, a heap."""


class Newcomers:
    """Queued jobs in queue order, each where the affinity is its own, then where the height is least, then by name.

    Loads only grow while jobs are assigned: a level that has no room for a shape will have none later, and where one
    job of a shape finds no room, none that comes after it does.
    """

    def __init__(self, cell: Cell, heights: Heights, promised: Collection[str]) -> None:
        self.by_domain: dict[str, list[Job]] = {}
        """{domain: the jobs that are to begin there}."""
        self.turns: dict[str, str] = {}
        """{job: the domain where it is to begin}."""
        self.refused: dict[str, None] = {}
        """Shapes of which not every job has a turn."""
        self._cell = cell
        self._heights, self._version, self._max_height = heights, heights.version, cell.settings.max_height
        self._levels: list[_Level] = []
        self._of_alike: dict[Alike, range] = {}
        self._choices: dict[str, _Choices] = {}
        self._last: Job | None = None
        """The last that has a turn."""
        walk = AllInOrder(cell)
        for job in walk:
            if job.job_id not in promised and not self._assign(walk.shape, job):
                walk.leave_out_shape()

    def holds(self, cell: Cell) -> bool:
        """Whether all that they rest on, but for the queue, is as it was."""
        return self._version == self._heights.version and self._max_height == cell.settings.max_height

    def add(self, job: Job) -> bool:
        """Assign a job that was queued since, too; whether that is possible: none that comes after it has a turn."""
        if self._last is not None and job.order < self._last.order:
            return False
        if job.shape not in self.refused:
            self._assign(job.shape, job)
        return True

    def _assign(self, shape: str, job: Job) -> bool:
        """Whether the job gets a turn; if so, where is noted."""
        if lacks_memory(self._cell, job):
            self.refused[shape] = None
            return False
        width = job.spec.gpus.count
        if shape not in self._choices:
            self._choices[shape] = self._choices_of(shape, job)
        heap = self._choices[shape]
        while heap:
            strange, height, name, at = heap[0]
            level = self._levels[at]
            load, first = level.least
            if load + width > level.limit:
                heappop(heap)
            elif first != name or load / level.gpus != height:
                heapreplace(heap, (strange, load / level.gpus, first, at))
            else:
                level.raise_least(width)
                self._last = job
                self.by_domain.setdefault(name, []).append(job)
                self.turns[job.job_id] = name
                return True
        self.refused[shape] = None
        return False

    def _choices_of(self, shape: str, job: Job) -> _Choices:
        found: _Choices = []
        for alike in self._heights.that_hold(shape, job):
            for at in self._levels_of(alike):
                level = self._levels[at]
                load, name = level.least
                found.append((level.affinity not in (0, job.spec.gpus.count), load / level.gpus, name, at))
        heapify(found)
        return found

    def _levels_of(self, alike: Alike) -> range:
        """The places of the levels of domains of one kind."""
        if alike not in self._of_alike:
            first, limit = len(self._levels), self._max_height * alike.gpus
            self._levels += [
                _Level(affinity, alike.gpus, limit, ranked) for affinity, ranked in alike.by_affinity.items()
            ]
            self._of_alike[alike] = range(first, len(self._levels))
        return self._of_alike[alike]


def newcomers(cell: Cell, memory: Memory, promised: Collection[str]) -> Newcomers:
    """All of them; jobs that elastic ones make room for (`promised`) need no turn."""
    heights = up_to_date(cell).view(Heights)
    if promised:
        return Newcomers(cell, heights, promised)
    found = known(memory)
    if found is None or not found.holds(cell):
        found = memory.__dict__[_NAME] = Newcomers(cell, heights, ())
    return found


def known(memory: Memory) -> Newcomers | None:
    """Those that were assigned last, unless the queue has become another one since."""
    return memory.__dict__.get(_NAME)


def forget(memory: Memory) -> None:
    """The queue is another one."""
    memory.__dict__.pop(_NAME, None)


_NAME = "newcomers"


def every_job_has_a_turn(cell: Cell) -> bool:
    """Whether there is room for all queued jobs, wherever each is assigned.

    A job finds none only where each domain that can hold it has less than its width left below the limit. That takes
    more GPUs of jobs than are there and on the queue together.
    """
    heights = up_to_date(cell).view(Heights)
    heads = {shape: cell.jobs[orders[0][2]] for shape, orders in cell.queue.items()}
    queued = sum(len(cell.queue[shape]) * job.spec.gpus.count for shape, job in heads.items())
    for shape, job in heads.items():
        room = sum(
            len(alike.members) * (cell.settings.max_height * alike.gpus - job.spec.gpus.count) - alike.load
            for alike in heights.that_hold(shape, job)
        )
        if queued >= room:
            return False
    return True


def may_begin_on(cell: Cell, over: Collection[str]) -> bool:
    """Whether a queued job may have been assigned to one of these domains."""
    heights = up_to_date(cell).view(Heights)
    alike = list(dict.fromkeys(found for name in over if (found := heights.of(name)) is not None))
    heads = {shape: cell.jobs[orders[0][2]] for shape, orders in cell.queue.items()}
    return any(each.can_hold(shape, job) for each in alike for shape, job in heads.items())
