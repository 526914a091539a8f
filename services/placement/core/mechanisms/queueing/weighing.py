"""Whether a gang that could start on many servers waits for few: an option of `philly`.

The first guideline of the Philly study (Jeon et al., ATC'19, section 6): "given that deep learning jobs run for many
hours or even days, incurring a 10% or 20% drop in efficiency could extend the job running time by multiple hours", so
that waiting for locality for longer may pay. Weighed are two times in seconds. The gain is how much longer the rest of
the gang's work takes on more servers than it needs; the wait is how long it takes until GPUs are free on as few, by
what is known of the jobs that hold them. GPUs of such a place are kept for the gang as they become free.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from heapq import nlargest
from typing import NamedTuple

from msgspec.structs import replace

from libs.contracts.jobs import GpuRequest
from libs.contracts.reasons import Number, PendingReason, Reason
from libs.kernel.words import counted
from services.placement.core.cell import Cell
from services.placement.core.cluster import gangs
from services.placement.core.cluster.nodes import Node
from services.placement.core.cluster.servers import Servers
from services.placement.core.jobs import Job
from services.placement.core.sharing.lengths import expected_s, steps_left
from services.placement.core.sharing.spread import speeds


class Gain(NamedTuple):
    """What a place on few servers is worth to a gang."""

    in_s: float
    """So much sooner the rest of its work is done there."""
    basis: str


class Place(NamedTuple):
    """As few servers of one rack as a gang needs, on which enough GPUs are expected to be free."""

    in_s: float
    """From now on."""
    gpu_type: str
    rooms: list[tuple[Node, int]]
    """The servers as the gang sees them, and how many GPUs will be free on each; those with most first."""

    def collection(self, count: int) -> gangs.Collection:
        """So many GPUs there, to be kept as they become free."""
        return gangs.Collection(self.gpu_type, gangs.parts(count, self.gpu_type, self.rooms))


@dataclass(frozen=True)
class Weighed:
    """The gain against the wait."""

    gain: Gain
    place: Place | None
    """Where GPUs are expected first on few servers; None: no end that would free them is expected."""
    fewest: int
    """Servers that the gang needs."""
    left_s: float
    """So much longer it may wait for that."""
    until_s: float
    """That is until then, at the latest."""

    @property
    def pays(self) -> bool:
        """Whether the gang waits: for less than it gains, and within its limit."""
        return self.place is not None and self.place.in_s < min(self.gain.in_s, self.left_s)

    @property
    def numbers(self) -> dict[str, Number]:
        """Both, in seconds; of a wait of which no end is expected, the gain alone."""
        gain: dict[str, Number] = {"gain_s": self.gain.in_s}
        if self.place is None:
            return gain
        too_long: dict[str, Number] = {"may_wait_s": self.left_s} if self._is_too_long else {}
        return {**gain, "wait_s": self.place.in_s, **too_long}

    @property
    def words(self) -> str:
        """For people."""
        on = counted(self.fewest, "server")
        gain = f"the rest of its work would take {self.gain.in_s:.0f} s less on {on}, by {self.gain.basis}"
        if self.place is None:
            return f"{gain}; that GPUs become free there is not expected"
        where = ", ".join(node.node_id for node, _ in self.place.rooms)
        too_long = f", and it may wait for {max(0.0, self.left_s):.0f} s more" if self._is_too_long else ""
        return f"{gain}; GPUs are expected there in {self.place.in_s:.0f} s ({where}){too_long}"

    @property
    def _is_too_long(self) -> bool:
        """Whether the gang would wait, were it not for its limit."""
        return self.place is not None and self.left_s <= self.place.in_s < self.gain.in_s

    def why_it_waits(self, fit: gangs.Fit, gpus: int) -> Reason:
        """Why the gang does not take the place that it fits."""
        message = f"fits on {counted(fit.nodes, 'node')} now, and waits: {self.words}"
        numbers: dict[str, Number] = {"gpus": gpus, "nodes_now": fit.nodes, **self.numbers, "until_s": self.until_s}
        return Reason(code=PendingReason.LOCALITY_RELAXING, message=message, numbers=numbers)


class Weighing:
    """Of the gangs that one pass looks at."""

    # Anew in each pass, though that is a tenth of the time of a simulation with nearly full GPUs: the end of a job that
    # is late, or known by its age alone, moves with the time, so that what was weighed earlier need not hold any more.

    def __init__(self, cell: Cell, now_s: float) -> None:
        self._cell, self._now_s = cell, now_s

    def of(self, job: Job, fit: gangs.Fit | None, servers: Servers) -> Weighed | None:
        """The gain and the wait of a gang that could start; None: there is nothing to weigh.

        That is so with the option off, on as few servers as it needs, and where nothing is known of its work or of how
        much slower it is on more.

        Args:
            fit: the place that it could have now.
            servers: that it may use.
        """
        limit_s = self._cell.settings.wait_for_locality_s
        if limit_s <= 0 or fit is None or fit.nodes == 1:
            return None
        request = replace(job.spec.gpus, types=[fit.gpu_type])
        fewest = gangs.fewest_servers(request, servers)
        gain = gain_of(self._cell, job, fit.gpu_type, self._now_s)
        if gain is None or fewest is None or fit.nodes <= fewest:
            return None
        place = soonest(self._cell, request, fewest, servers, self._ends)
        until_s = job.queued_since_s + limit_s
        return Weighed(gain, place, fewest, until_s - self._now_s, until_s)

    @cached_property
    def _ends(self) -> list[End]:
        """When the pass begins to weigh: a job that it places later has no end here."""
        return expected_ends(self._cell, self._now_s)


class End(NamedTuple):
    """A job is expected to give its GPUs back."""

    in_s: float
    seq: int
    """Order of arrival."""
    job: Job


def expected_ends(cell: Cell, now_s: float) -> list[End]:
    """Of all jobs that hold GPUs, the first end first."""
    holding = {job_id: None for jobs in cell.residents.values() for job_id in jobs}
    jobs = (cell.jobs[job_id] for job_id in holding)
    return sorted(End(expected_s(cell, job, now_s), job.seq, job) for job in jobs if not job.suspended)


def gain_of(cell: Cell, job: Job, gpu_type: str, now_s: float) -> Gain | None:
    """How much sooner a waiting gang is done on as few servers as it needs; None: it is not known to gain anything."""
    left, known = steps_left(job, now_s), speeds(cell, job, gpu_type)
    if left is None or known is None:
        return None
    gained_s = left / known.spread - left / known.together
    return Gain(gained_s, known.basis) if gained_s > 0 else None


class _Room:
    """The GPUs of a server that a gang may have, as jobs end."""

    def __init__(self, cell: Cell, node: Node, gpu_type: str) -> None:
        self.node, whole = node, cell.nodes[node.node_id]
        self.free, self._most = len(node.free(gpu_type)), node.capacity(gpu_type)
        # What others are to have there and have not yet, they get first.
        others = whole.capacity(gpu_type) - self._most
        self._owed = max(0, others - (len(whole.free(gpu_type)) - self.free))

    def gain(self, gpus: int) -> None:
        """So many GPUs become free."""
        paid = min(self._owed, gpus)
        self._owed -= paid
        self.free = min(self._most, self.free + gpus - paid)


def soonest(cell: Cell, request: GpuRequest, fewest: int, servers: Servers, ends: Iterable[End]) -> Place | None:
    """Where so few servers of one rack have room for the gang first, if jobs end as expected and none begins.

    Of CPUs and memory beside the GPUs a server is taken to have what it has now.

    Args:
        request: of one GPU type.
        fewest: servers.
        servers: that the gang may use.
        ends: in order; each is looked at once.
    """
    (gpu_type,) = request.types
    rooms = {node.node_id: _Room(cell, node, gpu_type) for node in servers.nodes() if node.capacity(gpu_type)}
    racks: dict[str, list[_Room]] = {}
    for node_id in sorted(rooms):
        racks.setdefault(rooms[node_id].node.rack, []).append(rooms[node_id])
    for end in ends:
        touched: dict[str, _Room] = {}
        for task in end.job.gang:
            room = rooms.get(task.node_id)
            if room is not None and end.job.gpu_type == gpu_type:
                whole = cell.nodes[task.node_id]
                room.gain(sum(whole.is_healthy(index) for index in task.gpu_indices))
                touched[task.node_id] = room
        for room in touched.values():
            chosen = [room] if fewest == 1 else nlargest(fewest, racks[room.node.rack], key=lambda each: each.free)
            if sum(each.free for each in chosen) >= request.count:
                return Place(end.in_s, gpu_type, [(each.node, each.free) for each in chosen])
    return None
