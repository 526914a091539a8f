"""Where an opportunistic job may be a guest, and where it goes: `minLoadNodes` of algorithm 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, takewhile
from operator import attrgetter

from libs.contracts.cluster import TaskPlacement
from services.placement.core.cell import Cell
from services.placement.core.cluster import gangs
from services.placement.core.cluster.nodes import Node
from services.placement.core.cluster.seats import Seat, Seating
from services.placement.core.cluster.servers import tie
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.suspending.returning import place_again
from services.placement.core.lifecycle.suspending.yielding import may_share, owners_on
from services.placement.core.promises import rooms_for
from services.placement.core.sharing.guests.loads import load_of

Open = tuple[Node, list[Seat]]
"""A server, and its GPUs of one type that a job may be a guest on, the least loaded first."""


@dataclass(frozen=True)
class Choice:
    """A place for a gang of guests."""

    gang: list[TaskPlacement]
    load: float
    """Sum over its GPUs."""


class Seats:
    """The GPUs of a cell as guests see them."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell

    def ranked(self, node: Node) -> list[Seat]:
        """All of the server's GPUs, the least loaded first."""
        return self._on(node).ranked

    def _on(self, node: Node) -> Seating:
        """Looked at again only where something has changed."""
        known = self._cell.seating.get(node.node_id)
        if known is None:
            known = self._cell.seating[node.node_id] = seating(self._cell, node)
        return known

    def loads(self, node: Node) -> list[float]:
        """Of the server's GPUs, by index."""
        return [load for load, _ in sorted(self.ranked(node), key=attrgetter("gpu"))]

    def why_not(self, job: Job, node: Node, seat: Seat) -> str | None:
        """What the GPU lacks to be a candidate, as a token; None: the job may be a guest there."""
        return self._closed(node, seat) or self._closed_to(job, node, seat.gpu)

    def _closed(self, node: Node, seat: Seat) -> str | None:
        """The same, whichever the job is."""
        known = self._on(node).closed
        if seat.gpu not in known:
            known[seat.gpu] = found_closed(self._cell, node, seat)
        return known[seat.gpu]

    def _closed_to(self, job: Job, node: Node, index: int) -> str | None:
        """The same of this job: it needs a seat, and memory of the host for what guests may have to leave the GPUs."""
        cell, owners = self._cell, owners_on(self._cell, node, index)
        guests = [cell.jobs[other] for other in node.gpus[index].guests if other != job.job_id]
        if not may_share(cell, node, index, [*guests, job], owners):
            return "NoSeat"
        return "NoHostMemory" if (owners or guests) and not self._has_room(node, job) else None

    def _has_room(self, node: Node, job: Job) -> bool:
        """Whether the host has room for what guests may have to take off its GPUs, with this one among them.

        As far as it has been measured; the same on each of the server's GPUs.
        """
        if not node.scales_memory:
            return True
        there = self._on(node)
        others = there.spilled_bytes - there.spills.get(job.job_id, 0)
        return others + job.profile.memory_peak_bytes <= node.spill_bytes

    def open_on(self, job: Job, node: Node, gpu_type: str, most: int | None = None) -> list[Seat]:
        """The candidates of one server and type, the least loaded first; no more than there are CPUs and memory for.

        Args:
            job: that wants seats.
            node: the server.
            gpu_type: of the GPUs.
            most: so many at most; None: all.
        """
        bound = self._cell.settings.guest_utilisation
        candidates = (
            seat
            for seat in takewhile(lambda each: each.load < bound, self.ranked(node))
            if node.gpus[seat.gpu].gpu_type == gpu_type
            and self._closed(node, seat) is None
            and self._closed_to(job, node, seat.gpu) is None
        )
        found = list(islice(candidates, most))
        return found[: rooms_for(self._cell, job).now(node, len(found))] if found else found

    def choice(self, job: Job) -> Choice | None:
        """Where the queued job goes: on the fewest servers of those with candidates, there on the least loaded."""
        servers, count = self._cell.servers_for(job), job.spec.gpus.count
        nodes = list(servers.nodes())
        found = []
        for gpu_type in gangs.accepted_types(job.spec.gpus, servers):
            open_ones = [(node, seats) for node in nodes if (seats := self.open_on(job, node, gpu_type, count))]
            chosen = least_loaded(open_ones, count, job.spec.gpus.max_nodes)
            if chosen is not None:
                found.append(chosen)
        return min(found, key=lambda each: (len(each.gang), each.load), default=None)

    def return_of(self, job: Job) -> Choice | None:
        """Where the suspended job goes on: on its servers, where it was if possible."""
        free, loads = {}, {}
        for task in job.gang:
            node = self._cell.nodes[task.node_id]
            seats = self.open_on(job, node, job.gpu_type) if node.usable else []
            free[task.node_id] = [seat.gpu for seat in seats]
            loads[task.node_id] = self.loads(node)
        gang = place_again(self._cell.nodes, job, free)
        if gang is None:
            return None
        return Choice(gang, sum(loads[task.node_id][index] for task in gang for index in task.gpu_indices))


def least_loaded(servers: Sequence[Open], count: int, max_nodes: int | None) -> Choice | None:
    """So many GPUs of one type on the fewest of these servers; None: they have too few, or on too many.

    The server on which the least loaded GPUs are as many as are still missing ends the gang; where none has as many,
    the one with most candidates goes on with it, among equals the least loaded.
    """
    left, gang, load, rank = list(servers), list[TaskPlacement](), 0.0, 0
    while rank < count:
        missing = count - rank
        if not left:
            return None
        chosen = min(left, key=partial(_order, missing))
        node, seats = chosen[0], chosen[1][:missing]
        left.remove(chosen)
        indices = sorted(seat.gpu for seat in seats)
        gang.append(TaskPlacement(node_id=node.node_id, gpu_indices=indices, first_rank=rank))
        rank, load = rank + len(seats), load + sum(seat.load for seat in seats)
    return Choice(gang, load) if max_nodes is None or len(gang) <= max_nodes else None


def _order(missing: int, server: Open) -> tuple[int, float, str]:
    """Most of what is missing first, then the least loaded, then by name."""
    node, seats = server[0], server[1][:missing]
    return -len(seats), sum(seat.load for seat in seats), tie(node.node_id)


def seating(cell: Cell, node: Node) -> Seating:
    """The server's GPUs as guests see them now."""
    guests = {job_id: cell.jobs[job_id] for gpu in node.gpus for job_id in gpu.guests}
    spills = {job_id: _spill(guest, node) for job_id, guest in guests.items()}
    ranked = sorted(Seat(load_of(cell, node, index), index) for index in range(len(node.gpus)))
    return Seating(ranked, spills, sum(spills.values()))


def found_closed(cell: Cell, node: Node, seat: Seat) -> str | None:
    """What the GPU lacks to be a candidate, whichever the job is, as a token; None: nothing.

    Candidates have been less than M busy, and nothing is to be their owner.
    """
    if not node.is_healthy(seat.gpu):
        return "Unhealthy"
    if seat.load >= cell.settings.guest_utilisation:
        return "TooBusy"
    owners = owners_on(cell, node, seat.gpu)
    if len(owners) < len(node.gpus[seat.gpu].holders):
        return "IsBeingOffered"
    return "HasOwner" if owners and not (cell.takes_guests and node.scales_compute) else None


def agree(cell: Cell) -> bool:
    """Whether what is kept of servers is what a look at them would give."""
    for node_id, known in cell.seating.items():
        node = cell.nodes[node_id]
        found = seating(cell, node)
        closed = {seat.gpu: found_closed(cell, node, seat) for seat in found.ranked if seat.gpu in known.closed}
        if known != replace(found, closed=closed):
            return False
    return True


def _spill(guest: Job, node: Node) -> int:
    """What all GPUs of the guest on the server hold at its peak."""
    gpus = sum(len(task.gpu_indices) for task in guest.gang if task.node_id == node.node_id)
    return guest.profile.memory_peak_bytes * gpus
