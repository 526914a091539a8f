"""GPUs change hands inside a round: planned places are taken as they become free, idle GPUs are given away."""

from __future__ import annotations

from libs.contracts.placement import Lease
from libs.kernel.machine import Turn
from services.placement.core import gangs
from services.placement.core.placing import place, tell
from services.placement.core.rounds.claims import by_debt, seen
from services.placement.core.rounds.why import why_here, why_idle, why_it_waits
from services.placement.core.state import Job, Node, Phase, Rounds, State


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
    """Jobs on the queue that no place is kept for, in order of arrival."""
    orders = [order for orders in state.queue.values() for order in orders if order[2] not in rounds.plan]
    return sorted((state.jobs[job_id] for _, _, job_id in orders), key=lambda job: job.seq)


def _place_planned(state: State, rounds: Rounds, turn: Turn[State]) -> None:
    for job_id, lease in list(rounds.plan.items()):
        job = state.jobs[job_id]
        if job.phase is Phase.QUEUED and not job.held and _is_free(state, lease):
            place(state, job, lease.gang, why_here(rounds, job, lease), turn, lease.packed_with)


def _is_free(state: State, lease: Lease) -> bool:
    for task in lease.gang:
        node = state.nodes[task.node_id]
        if not node.usable:
            return False
        for gpu in (node.gpus[index] for index in task.gpu_indices):
            if not gpu.healthy or any(holder not in lease.packed_with for holder in gpu.holders):
                return False
    return True


def _give_idle_away(state: State, rounds: Rounds, waiting: list[Job], turn: Turn[State]) -> None:
    """A GPU that became free, or a job that arrived, does not wait for the end of the round."""
    free = _idle(state, rounds)
    if not free:
        return
    for job in by_debt(rounds, waiting):
        known = seen(state, job, list(free))
        idle = {t: sum(len(indices) for _, indices in free[t]) for t in free}
        for gpu_type in sorted(known, key=lambda t: (-known[t], -idle[t], t)):
            fit = gangs.best_of_type(job.spec.gpus, gpu_type, free[gpu_type])
            if fit is not None:
                place(state, job, fit.gang, why_idle(job, gpu_type), turn)
                free = _idle(state, rounds)
                break


def _idle(state: State, rounds: Rounds) -> dict[str, list[tuple[Node, list[int]]]]:
    """{GPU type: servers with their free GPUs}, without those that a lease waits for."""
    planned = {(t.node_id, i) for lease in rounds.plan.values() for t in lease.gang for i in t.gpu_indices}
    found: dict[str, list[tuple[Node, list[int]]]] = {}
    for node in state.nodes.values():
        if not node.usable:
            continue
        by_type: dict[str, list[int]] = {}
        for index, gpu in enumerate(node.gpus):
            if not gpu.holders and gpu.healthy and (node.node_id, index) not in planned:
                by_type.setdefault(gpu.gpu_type, []).append(index)
        for gpu_type, indices in by_type.items():
            found.setdefault(gpu_type, []).append((node, indices))
    return found
