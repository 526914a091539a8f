"""The queue: one ascending list per shape, so that a pass looks at each shape once."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace

from services.placement.core.cell import Cell
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.hearing import listeners


def enqueue(cell: Cell, job: Job) -> None:
    """Put a job on the queue."""
    insort(cell.queue.setdefault(job.shape, []), job.order)
    if "told" in cell.__dict__:
        cell.told.setdefault(job.shape, {}).setdefault(job.wait_code, {})[job.job_id] = None
    for listener in listeners:
        listener.queued(cell, job)


def dequeue(cell: Cell, job: Job) -> None:
    """Take a job off the queue; nothing happens when it is not there."""
    shape, order = job.shape, job.order
    orders = cell.queue.get(shape)
    if orders is None:
        return
    place = bisect_left(orders, order)
    if place < len(orders) and orders[place] == order:
        del orders[place]
        if not orders:
            del cell.queue[shape]
        if "told" in cell.__dict__:
            _drop(cell, job, shape)
        for listener in listeners:
            listener.dequeued(cell, job)


def knows(cell: Cell, job: Job, cause: str) -> None:
    """The job knows why it waits, on the queue or because it is held."""
    shape = job.shape
    queued = "told" in cell.__dict__ and job.job_id in cell.told.get(shape, {}).get(job.wait_code, ())
    if queued:
        _drop(cell, job, shape)
        cell.told.setdefault(shape, {}).setdefault(cause, {})[job.job_id] = None
    job.wait_code = cause


def untold(cell: Cell) -> list[Job]:
    """The queued jobs that have not been told why they wait, shape by shape."""
    return [cell.jobs[job_id] for by_cause in cell.told.values() for job_id in by_cause.get("", ())]


def _drop(cell: Cell, job: Job, shape: str) -> None:
    """Forget what the queued job of this shape was told."""
    by_cause = cell.told[shape]
    jobs = by_cause[job.wait_code]
    del jobs[job.job_id]
    if not jobs:
        del by_cause[job.wait_code]
        if not by_cause:
            del cell.told[shape]


class HeadsInOrder:
    """Walks over the first job of each shape, over all shapes in queue order.

    After a job was placed (and so has left the queue) the next of its shape is walked to in its turn. When
    a job was not placed, none of its shape can be: the shape is left out for the rest of the walk, unless `go_on` is
    called.
    """

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._heads = [(orders[0], shape) for shape, orders in cell.queue.items()]
        self._goes_on = False
        heapify(self._heads)

    def __iter__(self) -> Iterator[Job]:
        while self._heads:
            order, shape = heappop(self._heads)
            self._goes_on = False
            yield self._cell.jobs[order[2]]
            orders = self._cell.queue.get(shape, [])
            place = bisect_left(orders, order)
            waits = place < len(orders) and orders[place] == order
            following = place + waits
            if following < len(orders) and (self._goes_on or not waits):
                heappush(self._heads, (orders[following], shape))

    def go_on(self) -> None:
        """The next job of the same shape is walked to in its turn, although this one has not been placed."""
        self._goes_on = True


class AllInOrder:
    """Walks over all queued jobs in queue order, none of which leaves the queue meanwhile."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._heads = [(orders[0], shape, 0) for shape, orders in cell.queue.items()]
        self._next: int | None = 0
        """Of the shape of the job that is walked to: the place of the next job; None: the heads are other ones."""
        heapify(self._heads)

    def __iter__(self) -> Iterator[Job]:
        while self._heads:
            (_, _, job_id), shape, place = self._heads[0]
            self._next = place + 1
            yield self._cell.jobs[job_id]
            orders = self._cell.queue[shape]
            if self._next is None:
                continue
            if self._next < len(orders):
                heapreplace(self._heads, (orders[self._next], shape, self._next))
            else:
                heappop(self._heads)

    @property
    def shape(self) -> str:
        """Of the job that is walked to."""
        return self._heads[0][1]

    def leave_out_shape(self) -> None:
        """Leave out the other jobs of the shape of this one."""
        _, shape, _ = self._heads[0]
        self._next = len(self._cell.queue[shape])

    def leave_out_priority(self) -> None:
        """Leave out those of its shape that have the same priority, too."""
        (priority, _, _), shape, _ = self._heads[0]
        self._next = bisect_left(self._cell.queue[shape], (priority + 1,))

    def take_back(self) -> None:
        """Leave out none of those that come after this one any more."""
        here = self._heads[0][0]
        places = {shape: bisect_right(orders, here) for shape, orders in self._cell.queue.items()}
        queue = self._cell.queue
        self._heads = [(queue[shape][at], shape, at) for shape, at in places.items() if at < len(queue[shape])]
        heapify(self._heads)
        self._next = None
