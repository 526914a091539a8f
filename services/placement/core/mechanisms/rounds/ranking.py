"""The queued jobs in the order of their deficits, kept up to date job by job."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from heapq import merge

from services.placement.core.cell import Cell
from services.placement.core.jobs import Job
from services.placement.core.mechanisms.rounds.claims import deficit_order
from services.placement.core.mechanisms.rounds.memory import Memory, Rounds

Ranked = tuple[tuple[float, tuple[int, int, str]], str]
"""A job's place, and its id."""


class Ranking:
    """Derived of the queue and the credit, and in no snapshot.

    The deficit of a job that waits changes only when time is booked or shares change: the ranking is made anew then.
    """

    def __init__(self, cell: Cell, rounds: Rounds) -> None:
        self._rounds = rounds
        self._of_shape: dict[str, list[Ranked]] = {
            shape: sorted(self._ranked(cell.jobs[job_id]) for _, _, job_id in orders)
            for shape, orders in cell.queue.items()
        }

    def _ranked(self, job: Job) -> Ranked:
        return deficit_order(self._rounds, job), job.job_id

    def add(self, job: Job) -> None:
        """The job is on the queue."""
        insort(self._of_shape.setdefault(job.shape, []), self._ranked(job))

    def remove(self, job: Job) -> None:
        """It is not any more."""
        same = self._of_shape[job.shape]
        del same[bisect_left(same, self._ranked(job))]

    def agrees(self, cell: Cell) -> bool:
        """Whether it is what a new one would be."""
        listed = {shape: ranked for shape, ranked in self._of_shape.items() if ranked}
        return listed == Ranking(cell, self._rounds)._of_shape

    def in_order(self, shapes: Iterable[str], others: Iterable[Job]) -> Iterator[str]:
        """The queued jobs of these shapes and some others, the largest deficit first; jobs may leave meanwhile."""
        lists = [list(self._of_shape.get(shape, ())) for shape in shapes]
        return (job_id for _, job_id in merge(*lists, sorted(map(self._ranked, others))))


def ranking_of(cell: Cell, memory: Memory, rounds: Rounds) -> Ranking:
    """The ranking; made anew when it was forgotten."""
    found = known(memory)
    if found is None:
        found = memory.__dict__[_NAME] = Ranking(cell, rounds)
    return found


def known(memory: Memory) -> Ranking | None:
    """The ranking, unless it was forgotten."""
    return memory.__dict__.get(_NAME)


def forget(memory: Memory) -> None:
    """Deficits of jobs that wait have changed."""
    memory.__dict__.pop(_NAME, None)


_NAME = "ranking"
