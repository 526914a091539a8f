"""Jobs that are not restartable are pinned to the nodes where they began: there they are suspended, and go on.

A script that keeps no checkpoints can be taken off its GPUs all the same, by suspending its processes (Gandiva,
OSDI'18, section 4.1), but these cannot leave their servers. The rounds give such a job GPUs of its nodes or none. Only
while all that it has done is done again within a round on a faster type, and would end it sooner, that type is open to
it, too: a job that has begun on idle GPUs of the slowest type does not stay there for ever. Two that are pinned
in different places could not share GPUs, so these jobs share none.

Whether a job is pinned, what it needs and what is open to it is asked only of jobs that are not restartable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from libs.contracts.placement import Lease
from libs.policies.policy import Way
from services.placement.core.cell import Cell
from services.placement.core.cluster.nodes import Node
from services.placement.core.jobs import ACTIVE, Job, Phase
from services.placement.core.lifecycle.giving_way import way_of
from services.placement.core.lifecycle.suspending.domains import takes_part
from services.placement.core.lifecycle.suspending.returning import is_pinned
from services.placement.core.mechanisms.rounds.memory import Rounds
from services.placement.core.mechanisms.rounds.selection import Room, Rooms
from services.placement.core.sharing.rates import rates

HostRooms = dict[str, int]
"""{server: GPUs' worth of jobs that its memory still takes; suspended processes are kept there}."""


def pinned_ones(cell: Cell, jobs: Iterable[Job]) -> dict[str, None]:
    """The jobs of these that are pinned."""
    begun = [job for job in jobs if not job.spec.restartable and job.phase is ACTIVE]
    return {job.job_id: None for job in begun if is_pinned(cell, job)}


def open_types(cell: Cell, job: Job, types: list[str]) -> list[str]:
    """Of these GPU types, those on which the job may get its next round."""
    return open_to_pinned(cell, job, types) if is_pinned(cell, job) else types


def open_to_pinned(cell: Cell, job: Job, types: list[str]) -> list[str]:
    """The same of a job that is known to be pinned."""
    if types == [job.gpu_type]:
        return types
    known = rates(cell, job, types)
    here = rates(cell, job, [job.gpu_type]).get(job.gpu_type, 0.0)
    return [t for t in types if t == job.gpu_type or _gains(job, here, known.get(t, 0.0), cell.settings.round_s)]


def open_rates(cell: Cell, job: Job, types: list[str]) -> dict[str, float]:
    """`rates` of any job on those of these GPU types that are open to it."""
    return rates(cell, job, types if job.spec.restartable else open_types(cell, job, types))


def _gains(job: Job, here: float, there: float, round_s: float) -> bool:
    """Whether the job loses little by beginning anew at another rate, and ends sooner."""
    little = 0 < here < there and job.account.attained_s * here <= round_s * there
    total = job.spec.total_steps
    return little and (total is None or total / there < (total - job.account.steps_done) / here)


def resting(cell: Cell) -> list[Job]:
    """Suspended jobs that would go on if they had GPUs."""
    if not cell.slices:
        return []
    return [job for job in cell.without_guests() if job.suspended and takes_part(job)]


def gives_way(cell: Cell, job: Job) -> bool:
    """Whether a paused job is suspended by the next round, so that it does not keep others from their nodes."""
    return job.stays and way_of(cell, job) is Way.SUSPEND


def rooms(gpus: Mapping[str, Mapping[str, Sequence[int]]], hosts: Mapping[str, int], most: Mapping[str, int]) -> Rooms:
    """What there is for rows that need certain rooms.

    Args:
        gpus: {GPU type: {server: indices of the GPUs that may be given away}}.
        hosts: as `host_rooms` says.
        most: {GPU type: GPUs of jobs that may begin there}, where less is known to fit than the hosts have room for.
    """
    found: Rooms = {}
    for gpu_type, nodes in gpus.items():
        for node_id, indices in nodes.items():
            found[node_id, gpu_type] = len(indices)
            found.update({(node_id, index): 1 for index in indices})
        found["", gpu_type] = most.get(gpu_type, sum(hosts[node_id] for node_id in nodes))
    return found


def needs(cell: Cell, job: Job, gpu_type: str, *, pinned: bool) -> Rooms:
    """The rooms that the job, which is pinned or not, needs beside GPUs of the type."""
    if job.gpu_type != gpu_type or not pinned:
        return {("", gpu_type): job.spec.gpus.count}
    found: Rooms = {}
    for task in job.gang:
        node = cell.nodes[task.node_id]
        if node.remaps:
            found[node.node_id, gpu_type] = len(task.gpu_indices)
        else:
            for index in task.gpu_indices:
                found[node.node_id, index] = 1
    return found


def crowded(cell: Cell, rounds: Rounds) -> dict[str, float]:
    """{job: part of its share that its nodes can give}, of pinned jobs on nodes that cannot give all of them all.

    The policy knows GPU types, not servers. What no job could be given is no deficit either: else deficits would grow
    for as long as it is crowded, and be collected from others afterwards.
    """
    jobs = [cell.jobs[job_id] for job_id in pinned_ones(cell, cell.without_guests()) if job_id in rounds.rows]
    pinned = {job.job_id: needs(cell, job, job.gpu_type, pinned=True) for job in jobs}
    promised: dict[Room, float] = {}
    for job_id, needed in pinned.items():
        gpu_type = cell.jobs[job_id].gpu_type
        time = sum([rounds.shares[row].time.get(gpu_type, 0.0) for row in rounds.rows[job_id]])
        for room, gpus in needed.items():
            promised[room] = promised.get(room, 0.0) + time * gpus
    given = {room: _size(cell, room) / max(time, 1e-12) for room, time in promised.items()}
    if min(given.values(), default=1.0) >= 1.0:
        return {}
    parts = {job_id: min([given[room] for room in needed], default=1.0) for job_id, needed in pinned.items()}
    return {job_id: part for job_id, part in parts.items() if part < 1.0}


def _size(cell: Cell, room: Room) -> int:
    """GPUs of a (server, type); one of a (server, index)."""
    node_id, what = room
    return cell.nodes[node_id].capacity(what) if isinstance(what, str) else 1


def host_rooms(cell: Cell, plan: Mapping[str, Lease]) -> HostRooms:
    """Of all servers; empty when no job is of the kind that is pinned."""
    pinnable = [job for job in cell.without_guests() if not job.spec.restartable]
    return rooms_on(cell, plan, cell.nodes) if pinnable else {}


def rooms_on(cell: Cell, plan: Mapping[str, Lease], node_ids: Iterable[str]) -> HostRooms:
    """Room for jobs that begin and are pinned there from then on: `max_height` GPUs' worth per GPU.

    Args:
        plan: {job id: the place that is kept for it}.
        node_ids: the servers that are asked about.
    """
    height = cell.settings.max_height
    found = {node_id: int(height * sum(map(len, cell.nodes[node_id].healthy.values()))) for node_id in node_ids}
    for node_id in found:
        for job in (cell.jobs[job_id] for job_id in cell.residents.get(node_id, ())):
            if not job.spec.restartable:
                found[node_id] -= sum(len(task.gpu_indices) for task in job.gang if task.node_id == node_id)
    for job_id, lease in plan.items():
        job = cell.jobs[job_id]
        if job.phase is Phase.QUEUED and not job.spec.restartable:
            for task in lease.gang:
                if task.node_id in found:
                    found[task.node_id] -= len(task.gpu_indices)
    return {node_id: max(0, gpus) for node_id, gpus in found.items()}


def with_host_room(servers: Sequence[tuple[Node, list[int]]], hosts: Mapping[str, int]) -> list[tuple[Node, list[int]]]:
    """Of the servers' GPUs, as many as jobs may begin on."""
    found = [(node, indices[: hosts[node.node_id]]) for node, indices in servers]
    return [(node, indices) for node, indices in found if indices]
