"""Which jobs have their turn: those that have had least, in order of priority, as many as fit side by side."""

from __future__ import annotations

from collections.abc import Sequence

from libs.contracts.cluster import TaskPlacement
from services.placement.core.cell import Cell
from services.placement.core.cluster import gangs
from services.placement.core.cluster.features import has
from services.placement.core.cluster.servers import Listed
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.suspending.deciding import Assignment
from services.placement.core.lifecycle.suspending.domains import Domain, takes_part
from services.placement.core.lifecycle.suspending.returning import place_again
from services.placement.core.mechanisms.slicing.memory import Memory
from services.placement.core.mechanisms.slicing.service_time import had
from services.placement.core.promises import Ledger
from services.placement.core.sharing.packs import pack_of

FreeGpus = dict[str, list[int]]
"""{node id: indices}, those that are best given away first."""
Pack = list[Job]
"""One job, or two that are packed."""


def choose(
    cell: Cell, memory: Memory, domain: Domain, newcomers: Sequence[Job], now_s: float, *, anew: bool
) -> list[Assignment]:
    """Which jobs run from now on, and where.

    Args:
        cell: says which jobs are packed with which.
        memory: says how much each job has had.
        domain: its GPUs are given away.
        newcomers: queued jobs that may begin here, in queue order.
        now_s: the time.
        anew: the slice is over, and all jobs compete; else running jobs make room for a higher priority alone.

    Returns:
        Assignments of running, suspended and new jobs. Higher priority goes first; among equals packs on trial, so that
        there is something to judge, then newcomers, because their users wait for the first sign of life (they jump
        the line once, and `max_height` bounds how many there are), then those that have had least (weighted
        round-robin, Gandiva section 4.2), then those that wait, then in order of arrival. A job that does not fit is
        passed over: having had least, it is first again until it does. Packed jobs run together.
    """
    ranked = sorted(_packs(cell, domain, newcomers), key=lambda pack: _order(cell, memory, pack, now_s, anew=anew))
    free = _free(domain, ranked)
    ledger = Ledger(cell, {node_id: tuple(indices) for node_id, indices in free.items()})
    assignments = []
    for pack in ranked:
        gang = _place_of(domain, pack[0], free, ledger)
        if gang is not None and ledger.has(pack, gang):
            ledger.take(pack, gang)
            names = [job.job_id for job in pack]
            assignments += [Assignment(job, gang, [name for name in names if name != job.job_id]) for job in pack]
            for task in gang:
                free[task.node_id] = [i for i in free[task.node_id] if i not in task.gpu_indices]
    return assignments


def runs(job: Job) -> bool:
    """Whether it holds GPUs."""
    return bool(job.gang) and not job.suspended


def lowest_running(domain: Domain) -> int:
    """The lowest priority of the jobs that hold GPUs here; 0: none does."""
    return min((job.priority for job in domain.residents if runs(job)), default=0)


def _packs(cell: Cell, domain: Domain, newcomers: Sequence[Job]) -> list[Pack]:
    takers = {job.job_id: job for job in domain.residents if takes_part(job)}
    packs: list[Pack] = []
    seen: dict[str, None] = {}
    for job in takers.values():
        if job.job_id not in seen:
            packs.append(pack_of(cell, job, takers))
            seen.update(dict.fromkeys(member.job_id for member in packs[-1]))
    return [*packs, *([job] for job in newcomers)]


def _order(
    cell: Cell, memory: Memory, pack: Pack, now_s: float, *, anew: bool
) -> tuple[int, bool, bool, bool, float, bool, int]:
    first = pack[0]
    served_s = sum(had(memory, job, now_s) for job in pack) / len(pack)
    stays = not anew and runs(first)
    on_trial = cell.book.on_trial(first.job_id)
    return (-first.priority, not on_trial, not stays, bool(first.gang), served_s, runs(first), first.seq)


def _free(domain: Domain, ranked: list[Pack]) -> FreeGpus:
    """GPUs that may be given away: idle ones, then paused jobs' ones, then those of the least likely to stay."""
    paused = {job.job_id: len(ranked) for job in domain.residents if job.held and job.lasts and job.move is None}
    places = paused | {job.job_id: place for place, pack in enumerate(ranked) for job in pack if runs(job)}
    free: FreeGpus = {}
    for node in domain.nodes:
        worth = []
        for index, gpu in enumerate(node.gpus):
            if all(holder in places for holder in gpu.holders) and (gpu.holders or node.is_healthy(index)):
                first = min((places[holder] for holder in gpu.holders), default=len(ranked) + 1)
                worth.append((-first, index))
        free[node.node_id] = [index for _, index in sorted(worth)]
    return free


def _place_of(domain: Domain, job: Job, free: FreeGpus, ledger: Ledger) -> list[TaskPlacement] | None:
    """Where it runs: where it can go on, or begin; None: nowhere now."""
    if not job.gang:
        return _new_place(domain, job, free, ledger)
    return place_again({node.node_id: node for node in domain.nodes}, job, free)


def _new_place(domain: Domain, job: Job, free: FreeGpus, ledger: Ledger) -> list[TaskPlacement] | None:
    nodes = [node for node in domain.nodes if node.usable and has(node, job.needs)]
    for gpu_type in gangs.accepted_types(job.spec.gpus, Listed(nodes)):
        offered = [
            (node, indices)
            for node in nodes
            if (indices := [i for i in free[node.node_id] if i in node.healthy.get(gpu_type, ())])
        ]
        if job.spec.is_host_bound:
            enough = [(node, indices[: ledger.gpus(job, node, len(indices))]) for node, indices in offered]
            offered = [(node, indices) for node, indices in enough if indices]
        fit = gangs.best_of_type(job.spec.gpus, gpu_type, offered)
        if fit is not None:
            return [
                TaskPlacement(node_id=t.node_id, gpu_indices=sorted(t.gpu_indices), first_rank=t.first_rank)
                for t in fit.gang
            ]
    return None
