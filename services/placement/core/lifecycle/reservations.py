"""GPUs that are kept for gangs: for which gang which, and so which GPUs a job may have.

A reservation says how many GPUs a gang is to have of each of some nodes. Those that are kept are the first free ones
there: the reservation grows as GPUs become free, and no event has to say again what is on the log already. All
reservations of a node together never exceed what it has. So no gang keeps a GPU that another one needs, and each is
complete, at the latest, when the jobs that run now have ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

from libs.contracts.placement import GangReleased, GangReserved
from libs.contracts.reasons import Reason
from services.placement.core.cell import Acquisition, Cell, Reservation
from services.placement.core.cluster import gangs
from services.placement.core.cluster.features import with_all
from services.placement.core.cluster.hosts import Amount, total_of
from services.placement.core.cluster.nodes import Node
from services.placement.core.cluster.servers import Listed, Servers
from services.placement.core.cluster.together import Together, without
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.plan import Plan
from services.placement.core.lifecycle.queue import Standing, place_of
from services.placement.core.lifecycle.suspending.returning import type_of
from services.placement.core.lifecycle.table import machine
from services.placement.core.promises import open_to, reserved_by, rooms_for


def in_order(cell: Cell) -> list[Reservation]:
    """The reservations in queue order of their gangs: what is free is kept for the first of them first."""
    return [reservation for _, reservation in _with_places(cell)]


def _with_places(cell: Cell) -> list[tuple[Standing, Reservation]]:
    """With the places of their gangs, ascending."""
    found = [(place_of(cell, cell.jobs[job_id]), reservation) for job_id, reservation in cell.reservations.items()]
    return sorted(found, key=itemgetter(0))


def before(cell: Cell, job: Job) -> list[Reservation]:
    """Those of gangs that go before the job, in queue order."""
    if not cell.reservations:
        return []
    place = place_of(cell, job)
    return [reservation for earlier, reservation in _with_places(cell) if earlier < place]


def servers_besides(cell: Cell, job: Job, reservations: Iterable[Reservation]) -> Servers:
    """The servers as this job sees them, without what these reservations keep of them, now or when it becomes free."""
    reservations = list(reservations)
    reserved = _by_node(reservations)
    if not reserved:
        return open_to(cell, job)
    nodes = ((cell.nodes[node_id], of_type) for node_id, of_type in reserved.items() if cell.nodes[node_id].usable)
    few = [without(node, of_type) for node, of_type in with_all(nodes, job.needs)]
    return open_to(cell, job, Together(cell.servers_for(job, closed=reserved), Listed(few)), reservations)


def servers_open_to(cell: Cell, job: Job) -> Servers:
    """What this waiting job may use: no GPU that is kept for a gang that goes before it."""
    return servers_besides(cell, job, before(cell, job))


def free_where_it_was(cell: Cell, job: Job) -> dict[str, list[int]]:
    """{server: free GPUs of the type that it had} of a suspended job, without those that are kept for earlier gangs.

    None where there are not enough CPUs beside them.
    """
    first = before(cell, job)
    earlier, found, rooms = _by_node(first), {}, rooms_for(cell, job, first)
    for task in job.gang:
        node, wanted = cell.nodes[task.node_id], len(task.gpu_indices)
        left = without(node, earlier.get(node.node_id, {}))
        may = node.usable and rooms.now(node, wanted) == wanted
        found[node.node_id] = left.free(type_of(node, task)) if may else []
    return found


def unreserved(cell: Cell, nodes: Iterable[Node]) -> list[Node]:
    """These nodes with what no reservation is to have: for jobs that do not wait on the queue, but move or grow."""
    reserved = _by_node(cell.reservations.values())
    return [without(node, reserved[node.node_id]) if node.node_id in reserved else node for node in nodes]


def kept(cell: Cell, reservation: Reservation) -> dict[str, list[int]]:
    """{node: GPUs that are kept for the gang now}."""
    earlier = _by_node(before(cell, cell.jobs[reservation.job_id]))
    found = {}
    for node_id, gpus in reservation.parts.items():
        node = without(cell.nodes[node_id], earlier.get(node_id, {}))
        found[node_id] = node.free(reservation.gpu_type)[:gpus] if node.usable else []
    return found


def width_kept(cell: Cell, reservation: Reservation) -> int:
    """GPUs that are kept for the gang now."""
    return sum(len(indices) for indices in kept(cell, reservation).values())


def overbooked(cell: Cell, reservations: Iterable[Reservation]) -> list[str]:
    """Nodes that are not usable, or do not have as many healthy GPUs, CPUs or memory as these are to have of them."""
    reservations = list(reservations)
    hosts = reserved_by(cell, reservations)
    return [
        node_id
        for node_id, reserved in _by_node(reservations).items()
        if not cell.nodes[node_id].usable
        or any(gpus > cell.nodes[node_id].capacity(gpu_type) for gpu_type, gpus in reserved.items())
        or min(total_of(cell.nodes[node_id]).minus(hosts.get(node_id, Amount()))) < 0
    ]


def _by_node(reservations: Iterable[Reservation]) -> dict[str, dict[str, int]]:
    """{node: {GPU type: GPUs that are reserved}}."""
    found: dict[str, dict[str, int]] = {}
    for reservation in reservations:
        for node_id, gpus in reservation.parts.items():
            of_node = found.setdefault(node_id, {})
            of_node[reservation.gpu_type] = of_node.get(reservation.gpu_type, 0) + gpus
    return found


def released(cell: Cell, job_id: str, reason: Reason) -> Plan:
    """The decision to end the job's reservation, if it has one."""
    reservation = cell.reservations.get(job_id)
    if reservation is not None:
        yield GangReleased(job_id=job_id, attempt=reservation.attempt, reason=reason)


def reservation_of(event: GangReserved) -> Reservation:
    """What the event says."""
    parts = {part.node_id: part.gpus for part in event.parts}
    return Reservation(
        job_id=event.job_id,
        attempt=event.attempt,
        gpu_type=event.gpu_type,
        parts=parts,
        until_s=event.until_s,
        try_number=event.try_number,
    )


@machine.evolves(GangReserved)
def gang_reserved(cell: Cell, event: GangReserved, now_s: float) -> None:
    cell.reservations[event.job_id] = reservation_of(event) if event.parts else _whole_nodes(cell, event)


def _whole_nodes(cell: Cell, event: GangReserved) -> Reservation:
    """Earlier versions kept whole nodes, and did not say which type."""
    nodes = [cell.nodes[node_id] for node_id in event.node_ids]
    types = gangs.accepted_types(cell.jobs[event.job_id].spec.gpus, Listed(nodes))
    gpu_type = max(types, key=lambda each: sum(node.capacity(each) for node in nodes))
    parts = {node.node_id: node.capacity(gpu_type) for node in nodes}
    return Reservation(job_id=event.job_id, attempt=event.attempt, gpu_type=gpu_type, parts=parts)


@machine.evolves(GangReleased)
def gang_released(cell: Cell, event: GangReleased, now_s: float) -> None:
    cell.reservations.pop(event.job_id, None)
    if event.retry_s is not None:
        cell.acquiring[event.job_id] = Acquisition(tries=event.try_number, retry_s=event.retry_s)
