"""Nodes are emptied, and the end is reported.

Every job there must leave at once, or those alone that keep what they have done: the others are moved where they can
hand over their state, and run on to their end where they cannot.
"""

from __future__ import annotations

from libs.contracts.agent import JobExited, JobMovable, NodeJoined, NodeLeft
from libs.contracts.gateway import JobResumeRequested, NodeDrainRequested, NodeUndrainRequested
from libs.contracts.introspection import NodeLost
from libs.contracts.migration import NodeDrained
from libs.contracts.reasons import Reason
from libs.kernel.machine import Turn
from services.migration.core.starting import start
from services.migration.core.state import Assignment, Drain, State
from services.migration.core.table import machine


@machine.evolves(NodeDrainRequested)
def drain_requested(state: State, event: NodeDrainRequested, now_s: float) -> None:
    drain = state.drains.setdefault(event.node_id, Drain(note=event.note, now=event.now))
    drain.now = drain.now or event.now


@machine.decides(NodeDrainRequested)
def empty_the_node(state: State, event: NodeDrainRequested, turn: Turn[State]) -> None:
    for job_id in [job_id for job_id, assignment in state.assignments.items() if event.node_id in assignment.nodes]:
        _leave(state, job_id, event.node_id, turn)
    report_empty(state, turn)


@machine.decides(JobMovable, JobResumeRequested)
def leave_with_its_state(state: State, event: JobMovable | JobResumeRequested, turn: Turn[State]) -> None:
    """A job on a node that is drained can be moved from now on, or is to go on."""
    if event.job_id in state.assignments:
        leave_drained_nodes(state, event.job_id, turn)


@machine.evolves(NodeUndrainRequested)
def undrain_requested(state: State, event: NodeUndrainRequested, now_s: float) -> None:
    state.drains.pop(event.node_id, None)


@machine.evolves(NodeDrained)
def node_drained(state: State, event: NodeDrained, now_s: float) -> None:
    state.drains[event.node_id].empty = True


@machine.decides(JobExited, NodeJoined, NodeLost, NodeLeft)
def look_whether_empty(state: State, event: JobExited | NodeJoined | NodeLost | NodeLeft, turn: Turn[State]) -> None:
    """The last task of a job that was moved away may have ended."""
    report_empty(state, turn)


def leave_drained_nodes(state: State, job_id: str, turn: Turn[State]) -> None:
    """A job that came to a node in ignorance of the drain moves on."""
    for node_id in state.assignments[job_id].nodes:
        if node_id in state.drains:
            _leave(state, job_id, node_id, turn)


def report_empty(state: State, turn: Turn[State]) -> None:
    """Say which nodes no job is left on."""
    for node_id, drain in state.drains.items():
        if not drain.empty and not state.jobs_on(node_id):
            turn.emit(NodeDrained(node_id=node_id, moved_jobs=drain.moved_jobs))


def leave_after_all(state: State, job_id: str, turn: Turn[State]) -> None:
    """A move that has failed was no reason to stay, for a job that must leave one of its nodes."""
    for node_id in state.assignments[job_id].nodes:
        if node_id in state.drains and _must_leave(state, job_id, node_id):
            _leave(state, job_id, node_id, turn)


def _leave(state: State, job_id: str, node_id: str, turn: Turn[State]) -> None:
    assignment, drain = state.assignments[job_id], state.drains[node_id]
    must_leave = _must_leave(state, job_id, node_id)
    if job_id in state.moves or not (must_leave or _moves_on(assignment)):
        return
    reason = Reason(
        code="NodeDrained",
        message=f"node {node_id} is drained: {drain.note}",
        numbers={"attempt": assignment.attempt},
    )
    start(state, job_id, reason, turn, to_nodes=[], must_leave=must_leave)


def _must_leave(state: State, job_id: str, node_id: str) -> bool:
    return state.drains[node_id].now or job_id in state.restartable


def _moves_on(assignment: Assignment) -> bool:
    """Whether its tasks can give their state to others; a paused job would hold GPUs there until it is resumed."""
    return not assignment.paused and all(node_id in assignment.movable for node_id in assignment.nodes)
