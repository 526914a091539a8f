"""The queue: one ascending list per shape, so that a pass looks at each shape once."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from services.placement.core.cell import Cell
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.hearing import listeners


def enqueue(cell: Cell, job: Job) -> None:
    """Put a job on the queue."""
    insort(cell.queue.setdefault(job.shape, []), job.order)
    if "untold" in cell.__dict__ and not job.wait_code:
        cell.untold[job.job_id] = None
    for listener in listeners:
        listener.queued(cell, job)


def dequeue(cell: Cell, job: Job) -> None:
    """Take a job off the queue; nothing happens when it is not there."""
    orders = cell.queue.get(job.shape, [])
    place = bisect_left(orders, job.order)
    if place < len(orders) and orders[place] == job.order:
        del orders[place]
        if not orders:
            del cell.queue[job.shape]
        for listener in listeners:
            listener.dequeued(cell, job)
    told(cell, job)


def told(cell: Cell, job: Job) -> None:
    """The job knows why it waits, or does not wait on the queue any more."""
    if "untold" in cell.__dict__:
        cell.untold.pop(job.job_id, None)


def ahead_of(cell: Cell, job: Job) -> int:
    """How many jobs of the same shape go before this one."""
    return bisect_left(cell.queue.get(job.shape, []), job.order)


class HeadsInOrder:
    """Walks over the first job of each shape, over all shapes in queue order.

    After a job was placed (and so has left the queue) the next of its shape is walked to in its turn. When
    a job was not placed, none of its shape can be: the shape is left out for the rest of the walk.
    """

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._heads = [(orders[0], shape) for shape, orders in cell.queue.items()]
        heapify(self._heads)

    def __iter__(self) -> Iterator[Job]:
        while self._heads:
            (_, _, job_id), shape = heappop(self._heads)
            yield self._cell.jobs[job_id]
            orders = self._cell.queue.get(shape)
            if orders and orders[0][2] != job_id:
                heappush(self._heads, (orders[0], shape))
