"""No GPU idles inside a round while a job can use it: planned places are taken, other free GPUs given away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from libs.contracts.base import Event
from libs.contracts.placement import Lease
from libs.contracts.reasons import PendingReason, Reason
from services.placement.core.cell import Cell
from services.placement.core.cluster import gangs
from services.placement.core.cluster.features import with_all
from services.placement.core.cluster.nodes import Node
from services.placement.core.jobs import Job, Phase
from services.placement.core.lifecycle.placing import placed, told
from services.placement.core.lifecycle.plan import Plan
from services.placement.core.lifecycle.suspending.deciding import resumed
from services.placement.core.lifecycle.suspending.domains import takes_part
from services.placement.core.lifecycle.suspending.returning import can_return, place_again
from services.placement.core.lifecycle.waiting import why_no_server
from services.placement.core.mechanisms.rounds.claims import seen
from services.placement.core.mechanisms.rounds.memory import Memory, Rounds
from services.placement.core.mechanisms.rounds.pinning import resting, rooms_on, with_host_room
from services.placement.core.mechanisms.rounds.ranking import ranking_of
from services.placement.core.mechanisms.rounds.why import why_here, why_idle, why_it_waits, why_it_waits_for
from services.placement.core.promises import rooms_for, shortage

Idle = dict[str, list[tuple[Node, list[int]]]]
"""{GPU type: servers with their idle GPUs}."""


def conserved(cell: Cell, memory: Memory, rounds: Rounds) -> Plan:
    """Place the jobs that the round waits for, then any that can use idle GPUs; tell the others why they wait."""
    yield from _planned_placed(cell, rounds)
    yield from _idle_given_away(cell, memory, rounds)
    yield from _told_why(cell, rounds)


def _told_why(cell: Cell, rounds: Rounds) -> Plan:
    """Tell the queued jobs why they wait, where the cause is news.

    A lease that waits is looked at job by job; all other jobs of a shape have the same cause.
    """
    news: list[tuple[Job, Reason]] = []
    for job_id, lease in rounds.plan.items():
        job = cell.jobs[job_id]
        if job.phase is Phase.QUEUED and not job.held:
            victims = _holders(cell, lease)
            # What is no news is not put into words.
            if job.wait_code != (PendingReason.WAITING_FOR_VICTIMS if victims else PendingReason.FAIR_SHARE):
                news.append((job, why_it_waits_for(lease, victims) if victims else why_it_waits(rounds, job)))
    for by_cause in cell.told.values():
        if all(job_id in rounds.plan for jobs in by_cause.values() for job_id in jobs):
            continue
        sample = cell.jobs[next(iter(next(iter(by_cause.values()))))]
        no_server = why_no_server(cell, sample)
        cause = no_server.code if no_server is not None else PendingReason.FAIR_SHARE
        others = (job_id for said, jobs in by_cause.items() if said != cause for job_id in jobs)
        jobs = (cell.jobs[job_id] for job_id in others if job_id not in rounds.plan)
        news += [(job, no_server or why_it_waits(rounds, job)) for job in jobs]
    for job, reason in sorted(news, key=lambda each: each[0].seq):
        yield from told(job, reason)


def _planned_placed(cell: Cell, rounds: Rounds) -> Plan:
    for job_id, lease in list(rounds.plan.items()):
        job = cell.jobs[job_id]
        if job.held or not _is_free(cell, lease):
            continue
        if shortage(cell, [(job, lease.gang)]) is not None:  # until others have left
            continue
        if job.phase is Phase.QUEUED:
            yield placed(job, lease.gang, why_here(rounds, job, lease), lease.packed_with)
        elif job.suspended and takes_part(job) and can_return(cell.nodes, job, lease.gang):
            reason = why_here(rounds, job, lease)
            yield resumed(cell, job, lease.gang, lease.packed_with, ends_s=rounds.ends_s, reason=reason)


def _is_free(cell: Cell, lease: Lease) -> bool:
    if _holders(cell, lease):
        return False
    nodes = ((cell.nodes[task.node_id], task.gpu_indices) for task in lease.gang)
    return all(node.usable and node.are_healthy(indices) for node, indices in nodes)


def _holders(cell: Cell, lease: Lease) -> list[str]:
    """The jobs that have to leave before the lease begins."""
    found: list[str] = []
    for task in lease.gang:
        gpus = cell.nodes[task.node_id].gpus
        for index in task.gpu_indices:
            holders = gpus[index].holders if index < len(gpus) else ()
            if holders:
                found += [holder for holder in holders if holder not in lease.packed_with and holder not in found]
    return found


def _idle_given_away(cell: Cell, memory: Memory, rounds: Rounds) -> Plan:
    """A GPU that became free, or a job that arrived, does not wait for the end of the round."""
    suspended = resting(cell)
    waiting = chain(
        (job_id for orders in cell.queue.values() for _, _, job_id in orders), (job.job_id for job in suspended)
    )
    # Mostly all that wait have a place kept for them: then it does not matter what idles.
    if all(job_id in rounds.plan for job_id in waiting):
        return
    idle = _idle(cell, rounds)
    if not idle:
        return
    refused: dict[tuple[str, bool, tuple[str, ...]], None] = {}
    given: Event | None = None
    for job in _candidates(cell, memory, rounds, suspended, idle):
        if given is not None and not (idle := _idle(cell, rounds)):
            return
        given = None
        if job.suspended:
            given = _resumed(cell, rounds, job, idle)
        elif job.width <= _most(idle):
            # What idles only becomes less: where one job of a kind finds no place, none of its kind does.
            known = seen(cell, job, list(idle))
            kind = (job.shape, job.spec.restartable, tuple(known))
            given = _begun(cell, rounds, job, known, idle) if kind not in refused else None
            if given is None:
                refused[kind] = None
        if given is not None:
            yield given


def _candidates(cell: Cell, memory: Memory, rounds: Rounds, suspended: list[Job], idle: Idle) -> Iterator[Job]:
    """The jobs that no place is kept for, the largest deficit first, but for those wider than all that idles."""
    most = _most(idle)
    shapes = [shape for shape, orders in cell.queue.items() if cell.jobs[orders[0][2]].width <= most]
    ranking = ranking_of(cell, memory, rounds)
    return (cell.jobs[job_id] for job_id in ranking.in_order(shapes, suspended) if job_id not in rounds.plan)


def _most(idle: Idle) -> int:
    """GPUs of the type of which most idle."""
    return max(sum(len(indices) for _, indices in servers) for servers in idle.values())


def _resumed(cell: Cell, rounds: Rounds, job: Job, idle: Idle) -> Event | None:
    """The suspended job goes on on some of what idles, if it can."""
    free = {node.node_id: indices for node, indices in idle.get(job.gpu_type, [])}
    gang = place_again(cell.nodes, job, free) if job.as_asked else None
    if gang is None or shortage(cell, [(job, gang)]) is not None:
        return None
    return resumed(cell, job, gang, [], ends_s=rounds.ends_s, reason=why_idle(job, job.gpu_type))


def _begun(cell: Cell, rounds: Rounds, job: Job, known: Mapping[str, float], idle: Idle) -> Event | None:
    """The queued job gets some of what idles, if it can use it."""
    if not job.spec.restartable:
        hosts = rooms_on(
            cell, rounds.plan, dict.fromkeys(node.node_id for servers in idle.values() for node, _ in servers)
        )
        idle = {gpu_type: with_host_room(servers, hosts) for gpu_type, servers in idle.items()}
    if job.spec.is_host_bound:
        room = rooms_for(cell, job).now
        idle = {
            gpu_type: [(node, few) for node, indices in servers if (few := indices[: room(node, len(indices))])]
            for gpu_type, servers in idle.items()
        }
    fit = _best(job, known, idle)
    return placed(job, fit.gang, why_idle(job, fit.gpu_type)) if fit is not None else None


def _best(job: Job, known: Mapping[str, float], idle: Idle) -> gangs.Fit | None:
    """On the type where the job is fastest; among equals where most is idle."""
    counts = {gpu_type: sum(len(indices) for _, indices in servers) for gpu_type, servers in idle.items()}
    by_choice = sorted(known, key=lambda t: (-known[t], -counts[t], t))
    needs = job.needs
    fits = (gangs.best_of_type(job.spec.gpus, each, with_all(idle[each], needs)) for each in by_choice)
    return next((fit for fit in fits if fit is not None), None)


def _idle(cell: Cell, rounds: Rounds) -> Idle:
    """What idles on usable servers, without GPUs that a lease waits for."""
    servers = cell.servers()
    free_ones = {gpu_type: servers.with_free(gpu_type) for gpu_type in servers.types()}
    if not any(free_ones.values()):
        return {}
    planned = {(t.node_id, i) for lease in rounds.plan.values() for t in lease.gang for i in t.gpu_indices}
    found: Idle = {}
    for gpu_type, of_type in free_ones.items():
        for node, free in of_type:
            indices = [i for i in free if (node.node_id, i) not in planned] if planned else free
            if indices:
                found.setdefault(gpu_type, []).append((node, indices))
    return found
