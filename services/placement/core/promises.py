"""What jobs are promised of the CPUs and memory of servers, and what is left of it for a job.

Promised is what a job asks for, for each of its GPUs. CPUs are promised while it holds the GPUs: a suspended job keeps
none, and two jobs that share a GPU share the CPUs beside it, as many as the one with more asks for. Memory is promised
for as long as its processes are there: a suspended job keeps it, and a job that moves has it on both sides; one that is
resized on its server has what the larger of both needs. A job that asks for neither is promised nothing, and is refused
nothing for that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from libs.contracts.cluster import TaskPlacement
from libs.contracts.jobs import JobSpec
from libs.kernel.words import bytes_of, counted
from services.placement.core.cell import Cell, Reservation
from services.placement.core.cluster import gangs
from services.placement.core.cluster.hosts import Amount, Limited, total_of
from services.placement.core.cluster.nodes import Node
from services.placement.core.cluster.servers import Servers
from services.placement.core.jobs import Job

Coming = Sequence[tuple[Job, Sequence[TaskPlacement]]]
"""Jobs, and the places that they are to have."""


def asked_by(spec: JobSpec) -> Amount:
    """For each GPU."""
    return Amount(spec.cpus or 0, spec.memory_bytes or 0)


def needed_by(job: Job) -> Amount:
    """What has to be left for each of its GPUs; the memory of a suspended job is promised to it already."""
    asked = asked_by(job.spec)
    return Amount(asked.cpus) if job.suspended else asked


def promised(cell: Cell, node_id: str) -> Amount:
    """What jobs have of the server's CPUs and memory."""
    known = cell.promises.get(node_id)
    if known is None:
        known = cell.promises[node_id] = promised_anew(cell, cell.nodes[node_id])
    return known


def promised_anew(cell: Cell, node: Node) -> Amount:
    """The same, of the jobs that are there now."""
    memory = 0
    here = dict.fromkeys(cell.residents.get(node.node_id, ()))
    here.update((holder, None) for gpu in node.gpus for holder in gpu.holders)
    for job in (cell.jobs[job_id] for job_id in here):
        if job.spec.memory_bytes:
            memory += job.spec.memory_bytes * _gpus_on(job, node.node_id)
    return Amount(sum(_cpus(cell, gpu.holders) for gpu in node.gpus), memory)


def _gpus_on(job: Job, node_id: str, more: Sequence[TaskPlacement] = ()) -> int:
    """GPUs of the job's largest part on the server: where it is, where it moves to, or of the place `more`."""
    gangs = (job.gang, job.move.gang if job.move is not None else (), more)
    return max(sum(len(task.gpu_indices) for task in gang if task.node_id == node_id) for gang in gangs)


def _cpus(cell: Cell, holders: Iterable[str]) -> int:
    """Beside a GPU that these jobs hold."""
    return max((cell.jobs[holder].spec.cpus or 0 for holder in holders), default=0)


@dataclass(frozen=True)
class RoomsFor:
    """For how many GPUs of a server there is enough for each."""

    cell: Cell
    need: Amount
    reserved: Mapping[str, Amount]
    """{server: what is kept there for others}."""

    def now(self, node: Node, most: int) -> int:
        """See `Rooms`."""
        if not any(self.need):
            return most
        return self._whole(node).minus(promised(self.cell, node.node_id)).gpus_of(self.need, most)

    def empty(self, node: Node, most: int) -> int:
        """See `Rooms`."""
        return self._whole(node).gpus_of(self.need, most)

    def _whole(self, node: Node) -> Amount:
        return total_of(node).minus(self.reserved.get(node.node_id, Amount()))


def rooms_for(cell: Cell, job: Job, reservations: Iterable[Reservation] = ()) -> RoomsFor:
    """As this job sees the servers, without what these reservations are to have."""
    return RoomsFor(cell, needed_by(job), reserved_by(cell, reservations))


def open_to(cell: Cell, job: Job, servers: Servers | None = None, reservations: Iterable[Reservation] = ()) -> Servers:
    """The servers as this job sees them: of their GPUs, as many as there is enough beside.

    Args:
        servers: of these; None: all usable ones with the features that the job needs.
        reservations: as for `rooms_for`.
    """
    if servers is None:
        servers = cell.servers_for(job)
    return Limited(servers, rooms_for(cell, job, reservations)) if job.spec.is_host_bound else servers


def elsewhere(cell: Cell, job: Job, servers: Servers) -> Servers:
    """The servers as this job sees them, without what any gang is to have, to go on there: also its memory is new."""
    if not job.spec.is_host_bound:
        return servers
    return Limited(servers, RoomsFor(cell, asked_by(job.spec), reserved_by(cell, cell.reservations.values())))


@dataclass(frozen=True)
class _Empty:
    """Servers on which there is no job."""

    need: Amount

    def now(self, node: Node, most: int) -> int:
        """See `Rooms`."""
        return self.empty(node, most)

    def empty(self, node: Node, most: int) -> int:
        """See `Rooms`."""
        return total_of(node).gpus_of(self.need, most)


def when_empty(job: Job, servers: Servers) -> Servers:
    """The servers as this job would see them were there no other."""
    return Limited(servers, _Empty(asked_by(job.spec))) if job.spec.is_host_bound else servers


@dataclass(frozen=True)
class _WhereMemoryIs:
    """Servers with GPUs and CPUs that come in turns, while the memory of jobs stays."""

    cell: Cell
    need: Amount

    def now(self, node: Node, most: int) -> int:
        """See `Rooms`."""
        return self.empty(node, most)

    def empty(self, node: Node, most: int) -> int:
        """See `Rooms`."""
        memory = Amount(0, promised(self.cell, node.node_id).memory_bytes)
        return total_of(node).minus(memory).gpus_of(self.need, most)


def lacks_memory(cell: Cell, job: Job) -> bool:
    """Whether other jobs have the memory that the queued job needs, however jobs take turns on GPUs."""
    if job.spec.memory_bytes is None:
        return False
    servers = cell.servers_for(job)
    with_others = Limited(servers, _WhereMemoryIs(cell, asked_by(job.spec)))
    return not gangs.can_hold(job.spec.gpus, with_others) and gangs.can_hold(job.spec.gpus, when_empty(job, servers))


def limited_to(cell: Cell, servers: Servers, need: Amount) -> Servers:
    """The servers to a job with this need."""
    return Limited(servers, RoomsFor(cell, need, {}))


def reserved_by(cell: Cell, reservations: Iterable[Reservation]) -> dict[str, Amount]:
    """{server: what the gangs of these reservations are to have of it}, where they ask for any."""
    found: dict[str, Amount] = {}
    for reservation in reservations:
        job = cell.jobs[reservation.job_id]
        if job.spec.is_host_bound:
            for node_id, gpus in reservation.parts.items():
                found[node_id] = found.get(node_id, Amount()).plus(needed_by(job).times(gpus))
    return found


def shortage(cell: Cell, coming: Coming, leaving: Collection[str] = ()) -> str | None:
    """The first server of which more than it has would be promised to these jobs, as a sentence; None: there is enough.

    Args:
        coming: with the places that they are to have, beside or instead of those that they have.
        leaving: jobs that give up the GPUs that they hold; their processes, and so their memory, stay.
    """
    asking = [(job, gang) for job, gang in coming if job.spec.is_host_bound]
    for node_id in dict.fromkeys(task.node_id for _, gang in asking for task in gang):
        node, before = cell.nodes[node_id], promised(cell, node_id)
        after = _with(cell, node, before, asking, leaving)
        if after.cpus > max(node.cpus, before.cpus):
            return f"{counted(after.cpus, 'CPU')} of {node_id} would be promised, which has {node.cpus}"
        if after.memory_bytes > max(node.memory_bytes, before.memory_bytes):
            would, has = bytes_of(after.memory_bytes), bytes_of(node.memory_bytes)
            return f"{would} of the memory of {node_id} would be promised, which has {has}"
    return None


def _with(cell: Cell, node: Node, before: Amount, coming: Coming, leaving: Collection[str]) -> Amount:
    """What would be promised of the server."""
    beside = [_cpus(cell, [holder for holder in gpu.holders if holder not in leaving]) for gpu in node.gpus]
    memory = before.memory_bytes
    for job, gang in coming:
        for task in gang:
            for index in task.gpu_indices if task.node_id == node.node_id else ():
                beside[index] = max(beside[index], job.spec.cpus or 0)
        # A guest was promised nothing for the GPUs that it has.
        had = 0 if job.guest and not job.offered else _gpus_on(job, node.node_id)
        more = _gpus_on(job, node.node_id, gang) - had
        memory += more * (job.spec.memory_bytes or 0)
    return Amount(sum(beside), memory)


class Ledger:
    """What is left of servers' CPUs and memory while GPUs are given away job by job, and nothing is said of it yet."""

    def __init__(self, cell: Cell, given_away: Mapping[str, Collection[int]]) -> None:
        """Of all servers.

        Args:
            given_away: {server: GPUs that may be given away}, with the CPUs beside them.
        """
        self._cell, self._given_away = cell, given_away
        self._left: dict[str, Amount] = {}

    def copy(self) -> Ledger:
        """Another one, of which others may be given."""
        found = Ledger(self._cell, self._given_away)
        found._left = dict(self._left)
        return found

    def gpus(self, job: Job, node: Node, most: int) -> int:
        """For how many GPUs of the server there is enough for the job, at most so many."""
        if not job.spec.is_host_bound:
            return most
        return self._left_of(node.node_id).gpus_of(needed_by(job), most)

    def has(self, jobs: Sequence[Job], gang: Sequence[TaskPlacement]) -> bool:
        """Whether there is enough for these jobs to share this place."""
        needed = self._for(jobs, gang)
        return not needed or all(min(self._left_of(node_id).minus(each)) >= 0 for node_id, each in needed.items())

    def take(self, jobs: Sequence[Job], gang: Sequence[TaskPlacement]) -> None:
        """The jobs share this place."""
        for node_id, amount in self._for(jobs, gang).items():
            self._left[node_id] = self._left_of(node_id).minus(amount)

    def _for(self, jobs: Sequence[Job], gang: Sequence[TaskPlacement]) -> dict[str, Amount]:
        """{server: what the jobs need of it}; empty where none asks for anything."""
        found: dict[str, Amount] = {}
        asking = [job for job in jobs if job.spec.is_host_bound]
        if not asking:
            return found
        for node_id in dict.fromkeys(task.node_id for task in gang):
            gpus = sum(len(task.gpu_indices) for task in gang if task.node_id == node_id)
            more = [
                (_gpus_on(job, node_id, gang) - _gpus_on(job, node_id)) * (job.spec.memory_bytes or 0) for job in asking
            ]
            found[node_id] = Amount(max(job.spec.cpus or 0 for job in asking) * gpus, sum(more))
        return found

    def _left_of(self, node_id: str) -> Amount:
        known = self._left.get(node_id)
        if known is None:
            node, free = self._cell.nodes[node_id], self._given_away.get(node_id, ())
            kept = sum(_cpus(self._cell, gpu.holders) for index, gpu in enumerate(node.gpus) if index not in free)
            used = Amount(kept, promised(self._cell, node_id).memory_bytes)
            known = self._left[node_id] = total_of(node).minus(used)
        return known
