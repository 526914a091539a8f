"""What must hold between events: every GPU accounted for, every job in exactly one place."""

from __future__ import annotations

from libs.kernel.service import InvariantViolated
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job, Phase
from services.placement.core.lifecycle.pools import side_for
from services.placement.core.lifecycle.reservations import overbooked
from services.placement.core.lifecycle.suspending.domains import domains, grouped
from services.placement.core.mechanisms.rounds.memory import of
from services.placement.core.mechanisms.rounds.ranking import known
from services.placement.core.promises import promised
from services.placement.core.sharing.guests import seats


def check(cell: Cell) -> None:
    """Raises InvariantViolated with both sides of the contradiction."""
    _holders(cell)
    _guests(cell)
    _hosts(cell)
    _derived(cell)
    _queue(cell)
    _reservations(cell)


def _holders(cell: Cell) -> None:
    held = {
        f"{node.node_id}:{index}": sorted(gpu.holders)
        for node in cell.nodes.values()
        for index, gpu in enumerate(node.gpus)
        if gpu.holders
    }
    given: dict[str, list[str]] = {}
    for job in _with_gpus(cell):
        gang = job.gang if job.phase is Phase.ACTIVE and not job.suspended else []
        for task in [*gang, *(job.move.gang if job.move is not None else [])]:
            for gpu_id in [f"{task.node_id}:{index}" for index in task.gpu_indices]:
                given[gpu_id] = sorted([*given.get(gpu_id, []), job.job_id])
    if held != given:
        place = min(k for k in held.keys() | given.keys() if held.get(k) != given.get(k))
        raise InvariantViolated(
            f"GPU {place} is held by {_names(held.get(place))}, but given to {_names(given.get(place))}"
        )
    for job in cell.jobs.values():
        if job.phase is Phase.ACTIVE and job.width not in job.spec.widths:
            raise InvariantViolated(f"job {job.job_id} may have {job.spec.widths} GPUs and holds {job.width}")


def _with_gpus(cell: Cell) -> list[Job]:
    """The jobs that hold GPUs, if they have any: not guests, but for those that are asked to become owners."""
    return [job for job in cell.jobs.values() if not job.guest or job.offered]


def _guests(cell: Cell) -> None:
    """Every seat is a guest's, every guest is whole, and no GPU has two owners beside guests, or too many of these."""
    seated = [
        (f"{node.node_id}:{index}", guest)
        for node in cell.nodes.values()
        for index, gpu in enumerate(node.gpus)
        for guest in gpu.guests
    ]
    given = [
        (f"{task.node_id}:{index}", job.job_id)
        for job in cell.jobs.values()
        for task in (job.gang if job.guest and not job.suspended else ())
        for index in task.gpu_indices
    ]
    if sorted(seated) != sorted(given):
        raise InvariantViolated(f"guests have the seats {sorted(seated)}, and were given {sorted(given)}")
    for job in cell.jobs.values():
        if job.offered and not (job.guest and job.gang and not job.suspended):
            raise InvariantViolated(f"GPUs are kept for {job.job_id}, which is no guest on any")


def _hosts(cell: Cell) -> None:
    """No server has promised more CPUs or memory than it has; counted from the jobs, not from what servers say."""
    cpus: dict[str, dict[int, int]] = {}
    memory: dict[tuple[str, str], int] = {}
    for job in _with_gpus(cell):
        places = [job.gang] if job.phase is Phase.ACTIVE else []
        places += [job.move.gang] if job.move is not None else []
        for gang in places:
            for task in gang:
                asked = (job.spec.memory_bytes or 0) * len(task.gpu_indices)
                memory[task.node_id, job.job_id] = max(asked, memory.get((task.node_id, job.job_id), 0))
                on = cpus.setdefault(task.node_id, {})
                for index in () if gang is job.gang and job.suspended else task.gpu_indices:
                    on[index] = max(job.spec.cpus or 0, on.get(index, 0))
    for node in cell.nodes.values():
        given = sum(cpus.get(node.node_id, {}).values())
        held = sum(amount for (node_id, _), amount in memory.items() if node_id == node.node_id)
        counts = promised(cell, node.node_id)
        if counts != (given, held):
            raise InvariantViolated(f"{node.node_id} counts {counts} as promised, its jobs have {(given, held)}")
        if not node.shrunk and (given > node.cpus or held > node.memory_bytes):
            has = f"{node.cpus} CPUs and {node.memory_bytes} bytes of memory"
            raise InvariantViolated(f"{node.node_id} has {has}, and jobs are promised {given} and {held}")


def _derived(cell: Cell) -> None:
    """What is kept up to date piece by piece is what a look at all would give."""
    ranking = known(of(cell))
    if ranking is not None and not ranking.agrees(cell):
        raise InvariantViolated("the ranking of the queued jobs is not the order of their deficits")
    if domains(cell) != grouped(cell):
        raise InvariantViolated("the servers that take turns together are not those that gangs span")
    if not cell.index.agrees():
        raise InvariantViolated("what is indexed as free is not what is free on the nodes")
    fresh = Cell(nodes=cell.nodes, jobs=cell.jobs, queue=cell.queue)
    if {node: jobs for node, jobs in cell.residents.items() if jobs} != fresh.residents:
        raise InvariantViolated("the jobs that are indexed as resident on nodes are not those with tasks there")
    for name in ("told", "suspended", "elastic", "guests", "still", "upgradable", "set_apart"):
        if getattr(cell, name) != getattr(fresh, name):
            raise InvariantViolated(f"{name}: indexed are {getattr(cell, name)}, but there are {getattr(fresh, name)}")
    if not seats.agree(cell):
        raise InvariantViolated("what is kept of the servers' seats is not what guests would see there")
    if cell.ends != Cell(slices=cell.slices).ends:
        raise InvariantViolated("the indexed ends of time slices are not those of the time slices")


def _queue(cell: Cell) -> None:
    listed = [job_id for orders in (*cell.queue.values(), cell.guest_queue) for _, _, job_id in orders]
    waiting = [j.job_id for j in cell.jobs.values() if j.phase is Phase.QUEUED and not j.held]
    if sorted(listed) != sorted(waiting):
        raise InvariantViolated(f"the queue lists {sorted(listed)}, but {sorted(waiting)} wait")
    for job in (cell.jobs[job_id] for job_id in listed):
        if job.pool != (side := side_for(cell, job)):
            raise InvariantViolated(f"job {job.job_id} waits for {job.pool or 'any node'}, and is to go to {side!r}")


def _reservations(cell: Cell) -> None:
    for job_id in cell.reservations:
        job = cell.jobs.get(job_id)
        if job is None or not (job.phase is Phase.QUEUED or job.suspended):
            raise InvariantViolated(f"GPUs are kept for {job_id}, which does not wait")
    for node_id in overbooked(cell, cell.reservations.values()):
        raise InvariantViolated(f"more GPUs of {node_id} are reserved than it has")


def _names(job_ids: list[str] | None) -> str:
    return " and ".join(job_ids) if job_ids else "no job"
