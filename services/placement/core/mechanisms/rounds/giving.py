"""GPUs change hands inside a round: planned places are taken as they become free, idle GPUs are given away."""

from __future__ import annotations

from libs.contracts.placement import Lease
from libs.kernel.machine import Turn
from services.placement.core.cluster import gangs
from services.placement.core.cluster.nodes import Node
from services.placement.core.jobs import Job, Phase
from services.placement.core.lifecycle.placing import place, tell
from services.placement.core.lifecycle.suspending.changes import resume
from services.placement.core.lifecycle.suspending.domains import takes_part
from services.placement.core.lifecycle.suspending.returning import place_again
from services.placement.core.mechanisms.rounds.claims import by_debt, seen
from services.placement.core.mechanisms.rounds.homes import HostRooms, host_rooms, resting, with_host_room
from services.placement.core.mechanisms.rounds.why import why_here, why_idle, why_it_waits
from services.placement.core.state import Rounds, State

Idle = dict[str, list[tuple[Node, list[int]]]]
"""{GPU type: servers with their idle GPUs}."""


def give(state: State, rounds: Rounds, turn: Turn[State]) -> None:
    """Place whom the round waits for, then whoever can use idle GPUs; tell the others why they wait."""
    _place_planned(state, rounds, turn)
    waiting = _waiting(state, rounds)
    if waiting:
        _give_idle_away(state, rounds, waiting, turn)
    for job in waiting:
        if job.phase is Phase.QUEUED and not job.wait_code:
            tell(state, job, why_it_waits(rounds, job), turn)


def _waiting(state: State, rounds: Rounds) -> list[Job]:
    """Jobs on the queue, and suspended ones, that no place is kept for, in order of arrival."""
    orders = [order for orders in state.queue.values() for order in orders if order[2] not in rounds.plan]
    waiting = [state.jobs[job_id] for _, _, job_id in orders]
    waiting += [job for job in resting(state) if job.job_id not in rounds.plan]
    return sorted(waiting, key=lambda job: job.seq)


def _place_planned(state: State, rounds: Rounds, turn: Turn[State]) -> None:
    for job_id, lease in list(rounds.plan.items()):
        job = state.jobs[job_id]
        if job.held or not _is_free(state, lease):
            continue
        if job.phase is Phase.QUEUED:
            place(state, job, lease.gang, why_here(rounds, job, lease), turn, lease.packed_with)
        elif job.suspended and takes_part(job):
            reason = why_here(rounds, job, lease)
            resume(state, job, lease.gang, lease.packed_with, ends_s=rounds.ends_s, reason=reason, turn=turn)


def _is_free(state: State, lease: Lease) -> bool:
    for task in lease.gang:
        node = state.nodes[task.node_id]
        if not node.usable:
            return False
        for index in task.gpu_indices:
            strangers = [holder for holder in node.gpus[index].holders if holder not in lease.packed_with]
            if strangers or not node.is_healthy(index):
                return False
    return True


def _give_idle_away(state: State, rounds: Rounds, waiting: list[Job], turn: Turn[State]) -> None:
    """A GPU that became free, or a job that arrived, does not wait for the end of the round."""
    idle = _idle(state, rounds)
    if not idle:  # mostly: then the jobs that wait need not be put in order
        return
    hosts = host_rooms(state)
    for job in by_debt(rounds, waiting):
        gives = _resume(state, rounds, job, idle, turn) if job.suspended else _begin(state, job, idle, hosts, turn)
        if gives:
            idle, hosts = _idle(state, rounds), host_rooms(state)
            if not idle:
                return


def _resume(state: State, rounds: Rounds, job: Job, idle: Idle, turn: Turn[State]) -> bool:
    """Whether the suspended job can go on on some of what idles, and does."""
    free = {node.node_id: indices for node, indices in idle.get(job.gpu_type, [])}
    gang = place_again(state.nodes, job, free) if job.as_asked else None
    if gang is not None:
        reason = why_idle(job, job.gpu_type)
        resume(state, job, gang, [], ends_s=rounds.ends_s, reason=reason, turn=turn)
    return gang is not None


def _begin(state: State, job: Job, idle: Idle, hosts: HostRooms, turn: Turn[State]) -> bool:
    """Whether the queued job can use some of what idles, and gets it."""
    if not job.spec.restartable:
        idle = {gpu_type: with_host_room(servers, hosts) for gpu_type, servers in idle.items()}
    fit = _best(state, job, idle)
    if fit is not None:
        place(state, job, fit.gang, why_idle(job, fit.gpu_type), turn)
    return fit is not None


def _best(state: State, job: Job, idle: Idle) -> gangs.Fit | None:
    """On the type where the job is fastest; among equals where most is idle."""
    known = seen(state, job, list(idle))
    counts = {gpu_type: sum(len(indices) for _, indices in servers) for gpu_type, servers in idle.items()}
    by_choice = sorted(known, key=lambda t: (-known[t], -counts[t], t))
    fits = (gangs.best_of_type(job.spec.gpus, gpu_type, idle[gpu_type]) for gpu_type in by_choice)
    return next((fit for fit in fits if fit is not None), None)


def _idle(state: State, rounds: Rounds) -> Idle:
    """What idles on usable servers, without GPUs that a lease waits for."""
    planned = {(t.node_id, i) for lease in rounds.plan.values() for t in lease.gang for i in t.gpu_indices}
    found: Idle = {}
    servers = state.servers()
    for gpu_type in servers.types():
        for node, free in servers.with_free(gpu_type):
            indices = [i for i in free if (node.node_id, i) not in planned]
            if indices:
                found.setdefault(gpu_type, []).append((node, indices))
    return found
