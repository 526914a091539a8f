"""Per event: what changes, and which moves start and end."""

from __future__ import annotations

from libs.contracts.failure_analysis import JobAbandoned
from libs.contracts.gateway import NodeDrainRequested, NodeUndrainRequested
from libs.contracts.migration import (
    OWNER,
    MigrationCompleted,
    MigrationFailed,
    MigrationStarted,
    NodeDrained,
)
from libs.contracts.placement import AttemptFailed, JobCancelled, JobPlaced, JobQueued, JobSucceeded
from libs.contracts.reasons import Reason
from libs.kernel.ids import short_id
from libs.kernel.machine import Machine, Turn
from services.migration.core.state import Drain, Move, Seat, State

Ended = JobSucceeded | JobCancelled | AttemptFailed | JobAbandoned

machine: Machine[State] = Machine(OWNER)


@machine.evolves(NodeDrainRequested)
def drain_requested(state: State, event: NodeDrainRequested, now_s: float) -> None:
    state.drains.setdefault(event.node_id, Drain(note=event.note))


@machine.decides(NodeDrainRequested)
def empty_the_node(state: State, event: NodeDrainRequested, turn: Turn[State]) -> None:
    for job_id in state.jobs_on(event.node_id):
        _start_move(state, job_id, event.node_id, turn)
    _report_empty(state, turn)


@machine.evolves(NodeUndrainRequested)
def undrain_requested(state: State, event: NodeUndrainRequested, now_s: float) -> None:
    state.drains.pop(event.node_id, None)


@machine.evolves(JobPlaced)
def job_seated(state: State, event: JobPlaced, now_s: float) -> None:
    nodes = [task.node_id for task in event.gang]
    state.seats[event.job_id] = Seat(attempt=event.attempt, nodes=nodes)
    for node_id in nodes:
        if node_id in state.drains:
            state.drains[node_id].empty = False


@machine.decides(JobPlaced)
def job_placed(state: State, event: JobPlaced, turn: Turn[State]) -> None:
    """A moving job has found a new place; a job placed in ignorance of a drain moves on."""
    move = state.moves.get(event.job_id)
    nodes = state.seats[event.job_id].nodes
    if move is not None and event.attempt > move.attempt:
        turn.emit(
            MigrationCompleted(
                migration_id=move.migration_id, job_id=event.job_id, attempt=event.attempt, to_nodes=nodes
            )
        )
    for node_id in nodes:
        if node_id in state.drains:
            _start_move(state, event.job_id, node_id, turn)


@machine.evolves(JobQueued)
def job_left(state: State, event: JobQueued, now_s: float) -> None:
    """When a later attempt waits, the earlier one has left its GPUs."""
    seat = state.seats.get(event.job_id)
    if seat is not None and event.attempt > seat.attempt:
        del state.seats[event.job_id]


@machine.decides(JobQueued)
def job_queued(state: State, event: JobQueued, turn: Turn[State]) -> None:
    _report_empty(state, turn)


@machine.evolves(JobSucceeded, JobCancelled, AttemptFailed, JobAbandoned)
def attempt_ended(state: State, event: Ended, now_s: float) -> None:
    state.seats.pop(event.job_id, None)


@machine.decides(JobSucceeded, JobCancelled, AttemptFailed, JobAbandoned)
def end_the_move(state: State, event: Ended, turn: Turn[State]) -> None:
    move = state.moves.get(event.job_id)
    if move is not None:
        reason = Reason(code=type(event).__name__, message="the job ended before it ran at another place")
        turn.emit(MigrationFailed(migration_id=move.migration_id, job_id=event.job_id, reason=reason))
    _report_empty(state, turn)


@machine.evolves(MigrationStarted)
def move_started(state: State, event: MigrationStarted, now_s: float) -> None:
    state.moves[event.job_id] = Move(
        migration_id=event.migration_id, attempt=event.attempt, from_nodes=event.from_nodes
    )


@machine.evolves(MigrationCompleted)
def move_completed(state: State, event: MigrationCompleted, now_s: float) -> None:
    move = state.moves.pop(event.job_id)
    for node_id in move.from_nodes:
        if node_id in state.drains:
            state.drains[node_id].moved_jobs += 1


@machine.evolves(MigrationFailed)
def move_failed(state: State, event: MigrationFailed, now_s: float) -> None:
    del state.moves[event.job_id]


@machine.evolves(NodeDrained)
def node_drained(state: State, event: NodeDrained, now_s: float) -> None:
    state.drains[event.node_id].empty = True


def _start_move(state: State, job_id: str, node_id: str, turn: Turn[State]) -> None:
    if job_id in state.moves:
        return
    seat = state.seats[job_id]
    reason = Reason(
        code="NodeDrained",
        message=f"node {node_id} is drained: {state.drains[node_id].note}",
        numbers={"attempt": seat.attempt},
    )
    turn.emit(
        MigrationStarted(
            migration_id=short_id("m", f"{job_id}/{seat.attempt}/{turn.cause_id}"),
            job_id=job_id,
            attempt=seat.attempt,
            from_nodes=seat.nodes,
            reason=reason,
        )
    )


def _report_empty(state: State, turn: Turn[State]) -> None:
    for node_id, drain in state.drains.items():
        if not drain.empty and not state.jobs_on(node_id):
            turn.emit(NodeDrained(node_id=node_id, moved_jobs=drain.moved_jobs))
