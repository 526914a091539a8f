"""Where the chosen jobs go: leases are renewed where that is possible, large gangs are placed first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter

from libs.contracts.cluster import TaskPlacement
from libs.contracts.placement import Lease
from services.placement.core.cell import Cell
from services.placement.core.cluster import gangs
from services.placement.core.cluster.features import has, with_all
from services.placement.core.cluster.servers import ByFree, entry
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.suspending.returning import place_again
from services.placement.core.mechanisms.rounds.pinning import HostRooms, with_host_room
from services.placement.core.mechanisms.rounds.question import Offered
from services.placement.core.mechanisms.rounds.selection import Assignment
from services.placement.core.promises import Ledger


@dataclass
class Places:
    """The places of one round."""

    renewed: list[str] = field(default_factory=list)
    leases: list[Lease] = field(default_factory=list)
    begun: dict[str, int] = field(default_factory=dict)
    """{GPU type: GPUs of jobs that are pinned there from then on}."""
    refused: list[str] = field(default_factory=list)
    """GPU types of which no server takes a job that was to begin there."""


@dataclass(frozen=True)
class Present:
    """Competing jobs with processes on servers where they may go on, by id."""

    running: Mapping[str, Job]
    suspended: Mapping[str, Job]
    pinned: Mapping[str, None]
    """Those that are pinned to their servers."""


class Board:
    """The GPUs of one type that may be given away, as they will be when all jobs without a lease have left."""

    def __init__(
        self,
        cell: Cell,
        gpu_type: str,
        offered: Mapping[str, Sequence[int]],
        hosts: Mapping[str, int],
        ledger: Ledger | None,
    ) -> None:
        self._cell, self.gpu_type = cell, gpu_type
        self.ledger = ledger
        """Of CPUs and memory; None: no job of the round asks for any."""
        self._largest = max(map(len, offered.values()), default=1)
        self._hosts = dict(hosts)
        self.left = {node_id: sorted(indices) for node_id, indices in offered.items() if indices}
        """{server: GPUs that are still to be given}."""
        self._by_free: dict[bool, ByFree] = {}
        """{whether for a job that is pinned from then on: servers by the GPUs that it may get}; made when first asked
        for, because mostly all jobs stay where they are."""

    def _free(self, node_id: str, *, pins: bool) -> int:
        left = len(self.left.get(node_id, ()))
        return min(left, self._hosts[node_id]) if pins else left

    def has(self, gang: list[TaskPlacement]) -> bool:
        """Whether all GPUs of the gang are still to be given."""
        for task in gang:
            left = self.left.get(task.node_id, ())
            for index in task.gpu_indices:
                if index not in left:
                    return False
        return True

    def take(self, jobs: Sequence[str], gang: list[TaskPlacement], *, pins: bool = False) -> None:
        """Give these GPUs away, and what the jobs ask for beside them; `pins`: to one that begins, and is pinned there
        from now on."""
        if self.ledger is not None:
            self.ledger.take([self._cell.jobs[job_id] for job_id in jobs], gang)
        for task in gang:
            node_id, given = task.node_id, task.gpu_indices
            before: list[tuple[bool, ByFree, int]] = []
            if self._by_free:
                before = [(kind, by_free, self._free(node_id, pins=kind)) for kind, by_free in self._by_free.items()]
            left = self.left[node_id]
            for index in given:
                left.remove(index)
            if not left:
                del self.left[node_id]
            if pins:
                self._hosts[node_id] -= len(given)
            for kind, by_free, free in before:
                server = entry(node_id)
                by_free.remove(server, free)
                by_free.add(server, self._free(node_id, pins=kind))

    def best(self, job: Job, needs: Sequence[str]) -> gangs.Fit | None:
        """The best place for the job among what is left, on servers that have these features.

        Only GPUs with enough CPUs and memory for the job beside them count.
        """
        pins, request = not job.spec.restartable, job.spec.gpus
        picky = bool(needs) or job.spec.is_host_bound
        if not picky and (node_id := self._servers(pins=pins).fullest(request.count)) is not None:
            return gangs.on_one(request, self.gpu_type, (self._cell.nodes[node_id], self.left[node_id]))
        free = with_all(((self._cell.nodes[node_id], indices) for node_id, indices in self.left.items()), needs)
        free = with_host_room(free, self._hosts) if pins else free
        if not picky:
            return gangs.over_several(request, self.gpu_type, free)
        if self.ledger is not None:
            enough = [(node, indices[: self.ledger.gpus(job, node, len(indices))]) for node, indices in free]
            free = [pair for pair in enough if pair[1]]
        return gangs.best_of_type(request, self.gpu_type, free)

    def needs(self, assignment: Assignment) -> list[str]:
        """Features that the row's jobs need of their servers."""
        found = [feature for job_id in assignment.jobs for feature in self._cell.jobs[job_id].needs]
        return list(dict.fromkeys(found))

    def suits(self, gang: list[TaskPlacement], assignment: Assignment) -> bool:
        """Whether the gang's servers, which suit one of the row's jobs, have the features that the others need of them,
        and enough CPUs and memory for all of them."""
        if self.ledger is None and len(assignment.jobs) == 1:
            return True
        needs = self.needs(assignment) if len(assignment.jobs) > 1 else ()
        if needs and not all(has(self._cell.nodes[task.node_id], needs) for task in gang):
            return False
        return self.has_beside(assignment.jobs, gang)

    def has_beside(self, jobs: Sequence[str], gang: list[TaskPlacement]) -> bool:
        """Whether there are enough CPUs and memory for the jobs to share this place."""
        return self.ledger is None or self.ledger.has([self._cell.jobs[job_id] for job_id in jobs], gang)

    def _servers(self, *, pins: bool) -> ByFree:
        found = self._by_free.get(pins)
        if found is None:
            found = self._by_free[pins] = ByFree()
            for node_id in self.left:
                found.add(entry(node_id), self._free(node_id, pins=pins))
        return found

    def again(self, job: Job) -> list[TaskPlacement] | None:
        """Where a suspended job goes on, if it can go on on GPUs of this type."""
        if job.gpu_type != self.gpu_type or not job.as_asked:
            return None
        return place_again(self._cell.nodes, job, self.left)

    def ideal_nodes(self, width: int) -> int:
        """On how few servers of the common size so many GPUs fit."""
        return -(-width // self._largest)


def assign(cell: Cell, chosen: Sequence[Assignment], present: Present, gpus: Offered, hosts: HostRooms) -> Places:
    """Places for the chosen rows."""
    places, asked = Places(), False
    by_type: dict[str, list[Assignment]] = {}
    for assignment in chosen:
        by_type.setdefault(assignment.gpu_type, []).append(assignment)
        for job_id in assignment.jobs:
            asked = asked or cell.jobs[job_id].spec.is_host_bound
    ledger = Ledger(cell, _by_server(gpus)) if asked else None
    for gpu_type in sorted(by_type):
        assignments = by_type[gpu_type]
        offered: Mapping[str, Sequence[int]] = gpus.get(gpu_type, {})
        if hosts and any(assignment.needs for assignment in assignments):
            board = Board(cell, gpu_type, offered, hosts, ledger)
            assignments, offered = _assign_pinned(cell, places, board, _largest_first(assignments), present), board.left
        board_of = partial(Board, cell, gpu_type, offered, hosts)
        renewing = board_of(ledger.copy() if ledger is not None else None)
        part = _renewing(cell, renewing, assignments, present)
        if part is not None:
            ledger = renewing.ledger
        else:
            part = _anew(cell, board_of(ledger), assignments, present)
        places.renewed += part.renewed
        places.leases += part.leases
        places.begun |= part.begun
        places.refused += part.refused
    return places


def _by_server(gpus: Offered) -> dict[str, list[int]]:
    """{server: its GPUs that may be given away}, of all types."""
    found: dict[str, list[int]] = {}
    for of_type in gpus.values():
        for node_id, indices in of_type.items():
            found.setdefault(node_id, []).extend(indices)
    return found


def _largest_first(assignments: list[Assignment]) -> list[Assignment]:
    """In the order in which they choose their places."""
    return sorted(sorted(assignments, key=attrgetter("jobs")), key=attrgetter("width"), reverse=True)


def _assign_pinned(
    cell: Cell, places: Places, board: Board, assignments: list[Assignment], present: Present
) -> list[Assignment]:
    """Rows of jobs that can only go on on their servers come first, those that run before all. Returns the others.

    `select` has counted what there is for them.
    """
    others: list[Assignment] = []
    suspended: list[tuple[Assignment, Job]] = []
    for assignment in assignments:
        job = cell.jobs[assignment.jobs[0]]
        if not assignment.needs or job.gpu_type != assignment.gpu_type or job.job_id not in present.pinned:
            others.append(assignment)
        elif job.job_id in present.running and board.has(job.gang) and board.has_beside(assignment.jobs, job.gang):
            _assign_row(places, assignment, job.gang, board, present)
        else:
            suspended.append((assignment, job))
    for assignment, job in suspended:
        gang = board.again(job)
        if gang is not None and board.has_beside(assignment.jobs, gang):
            _assign_row(places, assignment, gang, board, present)
    return others


def _renewing(cell: Cell, board: Board, assignments: list[Assignment], present: Present) -> Places | None:
    """Every job that can stay stays; None when that leaves a gang on more servers than necessary."""
    places, others = Places(), []
    for assignment in assignments:
        stayer = _staying_job(assignment, present, board)
        if stayer is None:
            others.append(assignment)
        elif len(stayer.gang) > 1 and len(stayer.gang) > board.ideal_nodes(assignment.width):
            return None
        else:
            _assign_row(places, assignment, stayer.gang, board, present)
    for assignment in _largest_first(others):
        gang = _new_gang(cell, assignment, present, board)
        if gang is None or len(gang) > board.ideal_nodes(assignment.width):
            return None
        _assign_row(places, assignment, gang, board, present)
    return places


def _anew(cell: Cell, board: Board, assignments: list[Assignment], present: Present) -> Places:
    """Largest first, each where it is if that is as good as any other place."""
    places = Places()
    for assignment in _largest_first(assignments):
        stayer, gang = _staying_job(assignment, present, board), _new_gang(cell, assignment, present, board)
        if stayer is not None and (gang is None or len(stayer.gang) <= len(gang)):
            gang = stayer.gang
        if gang is not None:
            _assign_row(places, assignment, gang, board, present)
        elif assignment.needs:
            places.refused.append(assignment.gpu_type)
    return places


def _assign_row(
    places: Places, assignment: Assignment, gang: list[TaskPlacement], board: Board, present: Present
) -> None:
    """Give the gang's GPUs to all jobs of the row; a job that holds them already is not interrupted."""
    pins = bool(assignment.needs) and ("", assignment.gpu_type) in assignment.needs
    board.take(assignment.jobs, gang, pins=pins)
    if pins:
        places.begun[assignment.gpu_type] = places.begun.get(assignment.gpu_type, 0) + assignment.width
    for job_id in assignment.jobs:
        job = present.running.get(job_id)
        if job is not None and job.gang == gang:
            places.renewed.append(job_id)
        else:
            partners = [other for other in assignment.jobs if other != job_id]
            places.leases.append(Lease(job_id=job_id, gpu_type=assignment.gpu_type, gang=gang, packed_with=partners))


def _staying_job(assignment: Assignment, present: Present, board: Board) -> Job | None:
    """A job of the row that holds GPUs of the type which no other job has been given, as many as it asks for."""
    for job_id in assignment.jobs:
        job = present.running.get(job_id)
        if job is None or job.gpu_type != assignment.gpu_type or not job.as_asked:
            continue
        if board.has(job.gang) and board.suits(job.gang, assignment):
            return job
    return None


def _new_gang(cell: Cell, assignment: Assignment, present: Present, board: Board) -> list[TaskPlacement] | None:
    """Where one of the row's jobs is suspended, else the best place among what is left."""
    for job_id in assignment.jobs:
        job = present.suspended.get(job_id)
        gang = board.again(job) if job is not None else None
        if gang is not None and board.suits(gang, assignment):
            return gang
    fit = board.best(cell.jobs[assignment.jobs[0]], board.needs(assignment))
    return fit.gang if fit is not None and board.suits(fit.gang, assignment) else None
