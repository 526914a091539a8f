"""The queue: one ascending list per shape, so that a pass looks at each shape once."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from operator import attrgetter

from libs.policies.table import POLICIES
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job, Phase
from services.placement.core.lifecycle.hearing import heard_by
from services.placement.core.lifecycle.pools import settle


def enqueue(cell: Cell, job: Job) -> None:
    """Put a job on the queue, or on that of the jobs that wait for seats as guests."""
    job.guest = job.opportunistic and cell.takes_guests
    settle(cell, job)
    if job.guest:
        insort(cell.guest_queue, job.order)
        return
    shape = job.shape
    insort(cell.queue.setdefault(shape, []), job.order)
    if "told" in cell.__dict__:
        cell.told.setdefault(shape, {}).setdefault(job.wait_code, {})[job.job_id] = None
    for listener in heard_by(job):
        listener.queued(cell, job)


def dequeue(cell: Cell, job: Job) -> None:
    """Take a job off its queue; nothing happens when it is not there."""
    shape, order = job.shape, job.order
    orders = cell.guest_queue if job.guest else cell.queue.get(shape)
    if orders is None:
        return
    place = bisect_left(orders, order)
    if place < len(orders) and orders[place] == order:
        del orders[place]
        if job.guest:
            return
        if not orders:
            del cell.queue[shape]
        if "told" in cell.__dict__:
            _drop(cell, job, shape)
        for listener in heard_by(job):
            listener.dequeued(cell, job)


def knows(cell: Cell, job: Job, cause: str) -> None:
    """The job knows why it waits, on the queue or because it is held."""
    shape = job.shape
    queued = "told" in cell.__dict__ and job.job_id in cell.told.get(shape, {}).get(job.wait_code, ())
    if queued:
        _drop(cell, job, shape)
        cell.told.setdefault(shape, {}).setdefault(cause, {})[job.job_id] = None
    job.wait_code = cause


Standing = tuple[float, tuple[int, int, str]]
"""A job's place among all that wait, ascending."""


def place_of(cell: Cell, job: Job) -> Standing:
    """Its place; where the policy goes by quota, what its tenant uses of its quota comes first.

    The quota of a tenant without a limit are all GPUs.
    """
    if not POLICIES[cell.policy].by_quota:
        return 0.0, job.order
    tenant = job.spec.tenant
    quota = cell.tenant_quotas.get(tenant)
    if quota is None:
        quota = sum(len(node.gpus) for node in cell.nodes.values())
    used = cell.owned.get(tenant, 0)
    return (used / quota if quota else float(used)), job.order


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


class TenantsInTurn:
    """Walks over queued and suspended jobs, the next one being that of the tenant which uses least of its quota then.

    What is placed counts at once. As in `HeadsInOrder`, the shape of a queued job that was not placed is left out for
    the rest of the walk, unless `go_on` is called.
    """

    def __init__(self, cell: Cell, suspended: Iterable[Job]) -> None:
        self._cell = cell
        self._left_out: dict[str, None] = {}
        self._goes_on = False
        queued = (cell.jobs[job_id] for orders in cell.queue.values() for _, _, job_id in orders)
        self._of_tenant: dict[str, deque[Job]] = {}
        for job in sorted([*queued, *suspended], key=attrgetter("order")):
            self._of_tenant.setdefault(job.spec.tenant, deque()).append(job)

    def __iter__(self) -> Iterator[Job]:
        while heads := [head for jobs in self._of_tenant.values() if (head := self._head(jobs)) is not None]:
            job = min(heads, key=lambda head: place_of(self._cell, head))
            self._of_tenant[job.spec.tenant].popleft()
            self._goes_on = False
            yield job
            if job.phase is Phase.QUEUED and not self._goes_on:
                self._left_out[job.shape] = None

    def _head(self, jobs: deque[Job]) -> Job | None:
        while jobs and jobs[0].phase is Phase.QUEUED and jobs[0].shape in self._left_out:
            jobs.popleft()
        return jobs[0] if jobs else None

    def go_on(self) -> None:
        """The next job of the same shape is walked to in its turn, although this one has not been placed."""
        self._goes_on = True
