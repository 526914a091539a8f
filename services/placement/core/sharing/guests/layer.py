"""The guests' layer: what follows for opportunistic jobs from what the mechanism in force has given to owners.

It runs after each step of whichever mechanism is in force, and plans as one does (`lifecycle/plan.py`). Mechanisms do
not know that there are guests: to them the GPUs of guests are free.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import islice
from operator import attrgetter

from libs.contracts.cluster import TaskPlacement
from libs.contracts.placement import JobPlaced, Role, TimeSliceStarted
from libs.contracts.reasons import Number, PendingReason, Reason, Rejected
from libs.kernel.words import counted
from services.placement.core.cell import Cell
from services.placement.core.cluster import gangs
from services.placement.core.cluster.nodes import Node
from services.placement.core.cluster.seats import Seat
from services.placement.core.jobs import Job
from services.placement.core.lifecycle import waiting
from services.placement.core.lifecycle.orders import beside
from services.placement.core.lifecycle.placing import told
from services.placement.core.lifecycle.plan import Plan
from services.placement.core.lifecycle.reservations import released
from services.placement.core.lifecycle.suspending.deciding import resumed, slice_of
from services.placement.core.lifecycle.suspending.domains import domain_of, takes_part
from services.placement.core.lifecycle.suspending.yielding import next_limit_s, too_slow
from services.placement.core.sharing.guests.seats import Choice, Seats
from services.placement.core.sharing.guests.upgrading import offers, withdrawals

SHOWN = 5
"""GPUs that a reason names."""


def step(cell: Cell, now_s: float) -> Plan:
    """What is decided about guests now; mostly there are none, and none waits for a seat."""
    if not (cell.guests or cell.guest_queue or cell.offers):
        return
    # 1. Guests that were to have left for an owner, and have not.
    yield from too_slow(cell, now_s)
    # 2. Offers that the mechanism's step has overtaken.
    yield from withdrawals(cell, cell.offers)
    # 3. Seats, in queue order; suspended guests stand in the same order.
    yield from _seated(cell, now_s)
    # 4. Offers last: what has been given to a guest just now may be without an owner.
    yield from offers(cell, now_s)


def moments(cell: Cell) -> Iterator[float]:
    """When the passing of time alone may change what the layer decides."""
    limit_s = next_limit_s(cell) if cell.still else None
    if limit_s is not None:
        yield limit_s


def _seated(cell: Cell, now_s: float) -> Plan:
    """Guests get seats, or go on in theirs; the others are told why they wait."""
    resting = sorted(filter(takes_part, cell.guests_that_stand_still()), key=attrgetter("order"))
    queued = [cell.jobs[job_id] for _, _, job_id in cell.guest_queue]
    if not resting and not queued:
        return
    seats, refused = Seats(cell), dict[str, str]()
    for job in merge(resting, queued, key=attrgetter("order")):
        # What is taken only becomes more: where one job of a shape finds no seat, none of its shape does.
        if job.shape in refused and not job.suspended:
            if job.wait_code != refused[job.shape]:
                yield from _told_why(cell, job, refused[job.shape], seats)
            continue
        choice = seats.return_of(job) if job.suspended else seats.choice(job)
        if choice is not None:
            if job.suspended:
                yield _goes_on(cell, job, choice, now_s)
                continue
            # First: GPUs may be kept for it from a time without guests, or before its class was another.
            yield from released(cell, job.job_id, Reason(code="Placed", message="the gang starts as a guest"))
            yield _placed(cell, job, choice, seats)
            continue
        cause = _cause(cell, job)
        if not job.suspended:
            refused[job.shape] = cause
        if job.wait_code != cause:
            yield from _told_why(cell, job, cause, seats)


def _beside(cell: Cell, job: Job, gang: list[TaskPlacement]) -> list[str]:
    return list(dict.fromkeys(other for task in gang for other in beside(cell, job, task)))


def _placed(cell: Cell, job: Job, choice: Choice, seats: Seats) -> JobPlaced:
    where, others = ", ".join(task.node_id for task in choice.gang), _beside(cell, job, choice.gang)
    gpus, mean = job.spec.gpus.count, choice.load / job.spec.gpus.count
    bound = cell.settings.guest_utilisation
    numbers: dict[str, Number] = {"gpus": gpus, "nodes": len(choice.gang), "load": round(mean, 4), "bound": bound}
    company = f", beside {', '.join(others)}" if others else ""
    message = (
        f"a guest on {counted(gpus, 'GPU')} of {where}{company}: {mean:.0%} busy, the least of those that take any"
    )
    taken = {(task.node_id, index): None for task in choice.gang for index in task.gpu_indices}
    return JobPlaced(
        job_id=job.job_id,
        attempt=job.attempt,
        gang=choice.gang,
        packed_with=others,
        role=Role.GUEST,
        reason=Reason(
            code="LeastLoaded", message=message, numbers=numbers, rejected=_rejected(cell, job, seats, taken)
        ),
    )


def _goes_on(cell: Cell, job: Job, choice: Choice, now_s: float) -> TimeSliceStarted:
    where, mean = ", ".join(task.node_id for task in choice.gang), choice.load / job.width
    message = f"goes on as a guest on {where}, {mean:.0%} busy, where its memory is parked"
    reason = Reason(code="SeatBecameFree", message=message, numbers={"gpus": job.width, "load": round(mean, 4)})
    ends_s = max(slice_of(cell, domain_of(cell, job)).ends_s, now_s)
    return resumed(cell, job, choice.gang, _beside(cell, job, choice.gang), ends_s=ends_s, reason=reason)


def _cause(cell: Cell, job: Job) -> str:
    """Why the job has no seat: there are too few GPUs for it at all, or none of those that there are takes it now."""
    servers = cell.servers_for(job)
    if gangs.capacity(job.spec.gpus, servers) >= job.spec.gpus.count:
        return PendingReason.NO_GUEST_SEAT
    return waiting.cause_to_wait(cell, job, servers, None)


def _told_why(cell: Cell, job: Job, cause: str, seats: Seats) -> Plan:
    """The decision to tell the job why it has no seat."""
    if cause == PendingReason.NO_GUEST_SEAT:
        yield from told(job, _no_seat(cell, job, seats))
    else:
        yield from waiting.told_why(cell, job, cell.servers_for(job), None, 0.0)


def _no_seat(cell: Cell, job: Job, seats: Seats) -> Reason:
    """With the loads of the GPUs that came closest."""
    bound = cell.settings.guest_utilisation
    nodes = [cell.nodes[task.node_id] for task in job.gang] if job.suspended else list(cell.servers_for(job).nodes())
    types = dict.fromkeys(gpu_type for node in nodes for gpu_type in node.healthy)
    found = sum(len(seats.open_on(job, node, gpu_type)) for node in nodes for gpu_type in types)
    where = " of the servers where its memory is parked" if job.suspended else ""
    message = (
        f"needs {counted(job.width, 'GPU')}{where} that have been less than {bound:.0%} busy over 10 s and have room "
        f"for a guest; {counted(found, 'has', 'have')}"
    )
    numbers: dict[str, Number] = {"gpus": job.width, "open_gpus": found, "bound": bound}
    rejected = _rejected(cell, job, seats, {})
    return Reason(code=PendingReason.NO_GUEST_SEAT, message=message, numbers=numbers, rejected=rejected)


def _rejected(cell: Cell, job: Job, seats: Seats, taken: dict[tuple[str, int], None]) -> list[Rejected]:
    """The least loaded of the GPUs that were not taken, and why not."""
    on_each = (_ranked(node, seats, taken) for node in cell.servers_for(job).nodes())
    return [
        Rejected(
            what=f"{node_id}:{index}",
            code=seats.why_not(job, cell.nodes[node_id], Seat(load, index)) or "MoreLoaded",
            numbers={"load": round(load, 4)},
        )
        for load, node_id, index in islice(merge(*on_each), SHOWN)
    ]


def _ranked(node: Node, seats: Seats, taken: dict[tuple[str, int], None]) -> Iterator[tuple[float, str, int]]:
    """The server's GPUs that were not taken, the least loaded first."""
    for load, index in seats.ranked(node):
        if (node.node_id, index) not in taken:
            yield load, node.node_id, index
