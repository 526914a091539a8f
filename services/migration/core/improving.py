"""Which jobs would be better off elsewhere (Gandiva, OSDI'18, section 4.2), under a policy with time slices.

A while after anything has changed, so that placement has had its turn: free GPUs that are still free are used by jobs
that wait for their turn elsewhere, then by jobs that are spread or slowed down, then to empty servers; and what has
been idle for long, by elastic jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from libs.contracts.reasons import Number, Reason
from libs.contracts.runtime import TimerFired
from libs.kernel.machine import Turn
from libs.kernel.words import counted, plural
from libs.policies.table import POLICIES
from services.migration.core.assignments import gpu_type_of
from services.migration.core.room import Room
from services.migration.core.starting import start
from services.migration.core.state import Assignment, State
from services.migration.core.table import machine


@dataclass(frozen=True)
class Proposal:
    """A move that should be made."""

    job_id: str
    to_node: str
    reason: Reason
    gpus: int | None = None
    """How many it is to have from then on; None: as many as now."""


@machine.evolves(TimerFired)
def looked(state: State, event: TimerFired, now_s: float) -> None:
    rests = [assignment.rests_until_s for assignment in state.assignments.values()]
    grows = [
        state.servers[assignment.nodes[0]].changed_s + state.grow_after_s
        for job_id, assignment in state.assignments.items()
        if job_id in state.widths and assignment.nodes[0] in state.servers
    ]
    state.look_at_s = min((time_s for time_s in [*rests, *grows] if time_s > now_s), default=None)


@machine.decides(TimerFired)
def improve(state: State, event: TimerFired, turn: Turn[State]) -> None:
    """Start the moves that make sense now, no more than may be under way at once."""
    room = Room(state, turn.now_s)
    while len(state.moves) < state.moves_at_once:
        proposal = _best(state, room, turn.now_s)
        if proposal is None:
            break
        room.plan(state.assignments[proposal.job_id], proposal.to_node, proposal.gpus)
        start(
            state,
            proposal.job_id,
            proposal.reason,
            turn,
            to_nodes=[proposal.to_node],
            must_leave=False,
            gpus=proposal.gpus,
        )


def next_wakeup(state: State) -> float | None:
    """When to look; never under a policy that moves no job to be better off."""
    policy = POLICIES.get(state.policy)  # none before the first PolicyChanged, and of one that is no more
    return state.look_at_s if policy is not None and policy.moves_to_improve else None


def _best(state: State, room: Room, now_s: float) -> Proposal | None:
    if room.is_full:  # each of the rules takes free GPUs
        return None
    candidates = {
        job_id: assignment
        for job_id, assignment in state.assignments.items()
        if job_id not in state.moves and _may_move(assignment, now_s)
    }
    for rule in RULES:
        proposal = rule(state, candidates, room)
        if proposal is not None:
            return proposal
    return None


def _may_move(assignment: Assignment, now_s: float) -> bool:
    still_there = not assignment.exited and all(node_id in assignment.movable for node_id in assignment.nodes)
    return still_there and not assignment.packed and now_s >= assignment.rests_until_s


def _go_on(state: State, candidates: dict[str, Assignment], room: Room) -> Proposal | None:
    """A job that waits for its turn goes on where GPUs are free, the one that has waited longest first."""
    since = {job_id: each.suspended_since_s or 0.0 for job_id, each in candidates.items() if each.waits}
    for job_id in sorted(since, key=lambda job_id: (since[job_id], job_id)):
        assignment = candidates[job_id]
        for node_id in room.servers_for(job_id, assignment, but=assignment.nodes):
            verb = plural(assignment.width, "is", "are")
            message = f"it waits for its turn, and {counted(assignment.width, 'GPU')} of {node_id} {verb} free"
            return Proposal(job_id, node_id, Reason(code="GpusVacated", message=message))
    return None


def _come_together(state: State, candidates: dict[str, Assignment], room: Room) -> Proposal | None:
    """A gang that is spread over servers comes together on one."""
    for job_id, assignment in candidates.items():
        if assignment.holds and len(assignment.gang) > 1:
            for node_id in room.servers_for(job_id, assignment, but=[]):
                numbers: dict[str, Number] = {"servers": len(assignment.gang)}
                message = f"it is spread over {len(assignment.gang)} servers, and {node_id} has room for all of it"
                return Proposal(job_id, node_id, Reason(code="Spread", message=message, numbers=numbers))
    return None


def _get_apart(state: State, candidates: dict[str, Assignment], room: Room) -> Proposal | None:
    """A job that its neighbours slow down goes to an empty server."""
    for job_id, assignment in candidates.items():
        slow = 0 < assignment.rate_per_s < state.interference * assignment.best_per_s
        if not (
            slow and assignment.holds and len(assignment.gang) == 1 and len(state.jobs_on(assignment.nodes[0])) > 1
        ):
            continue
        for node_id in room.servers_for(job_id, assignment, but=assignment.nodes):
            if not state.jobs_on(node_id) and node_id not in room.filled:
                rate_per_s, best_per_s = assignment.rate_per_s, assignment.best_per_s
                numbers: dict[str, Number] = {"rate_per_s": rate_per_s, "best_per_s": best_per_s}
                message = f"beside others it does {rate_per_s:.3g} of the {best_per_s:.3g} mini-batches/s"
                return Proposal(job_id, node_id, Reason(code="Interference", message=message, numbers=numbers))
    return None


def _defragment(state: State, candidates: dict[str, Assignment], room: Room) -> Proposal | None:
    """A job leaves the server with most free GPUs for a fuller one, so that large gangs find whole servers.

    Only to servers that are no emptier: then the free GPUs are in fewer places after every move, and it ends.
    """
    if state.defrag_ratio <= 0:
        return None
    for free, node_id in sorted(((room.free_gpus(n), n) for n in room.free), reverse=True):
        gpus = len(state.servers[node_id].gpus)
        if not gpus or free < state.defrag_ratio * gpus or node_id in room.emptied or node_id in room.filled:
            continue
        for job_id, assignment in candidates.items():
            if assignment.nodes != [node_id] or not assignment.holds:
                continue
            for other in room.servers_for(job_id, assignment, but=assignment.nodes):
                if state.jobs_on(other) and room.free_gpus(other) <= free:
                    numbers: dict[str, Number] = {"free_gpus": free, "gpus": gpus}
                    part = f"{free} of {counted(gpus, 'GPU')} of {node_id} {plural(free, 'is', 'are')} free"
                    message = f"{part}, and {other} has room"
                    return Proposal(job_id, other, Reason(code="Defragmentation", message=message, numbers=numbers))
    return None


def _grow(state: State, candidates: dict[str, Assignment], room: Room) -> Proposal | None:
    """An elastic job grows onto GPUs of its server that have been idle for a while, the narrowest job first."""
    if state.queued:
        return None
    for job_id, assignment in sorted(candidates.items(), key=lambda item: item[1].width):
        most = state.max_gpus.get(job_id)
        possible = [width for width in state.widths.get(job_id, ()) if most is None or width <= most]
        wider = [width for width in possible if width > assignment.width]
        if not (wider and assignment.resizable and assignment.holds and len(assignment.gang) == 1):
            continue
        [node_id] = assignment.nodes
        idle = room.free.get(node_id, {}).get(gpu_type_of(state, assignment), 0)
        fitting = [width for width in wider if width - assignment.width <= idle]
        if not fitting or room.unchanged_s(node_id) < state.grow_after_s or _a_job_waits_on(state, node_id):
            continue
        numbers: dict[str, Number] = {"gpus": fitting[-1], "gpus_before": assignment.width, "idle_gpus": idle}
        idle_gpus = f"{counted(idle, 'GPU')} of {node_id} {plural(idle, 'has', 'have')}"
        message = f"{idle_gpus} been idle for {room.unchanged_s(node_id):.0f} s"
        return Proposal(job_id, node_id, Reason(code="IdleGpus", message=message, numbers=numbers), fitting[-1])
    return None


def _a_job_waits_on(state: State, node_id: str) -> bool:
    return any(assignment.waits and node_id in assignment.nodes for assignment in state.assignments.values())


RULES: tuple[Callable[[State, dict[str, Assignment], Room], Proposal | None], ...] = (
    _go_on,
    _come_together,
    _get_apart,
    _defragment,
    _grow,
)
"""In the order of urgency."""
