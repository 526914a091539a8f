"""How moves end, and what they have brought."""

from __future__ import annotations

from libs.contracts.failure_analysis import JobAbandoned
from libs.contracts.introspection import JobProfiled
from libs.contracts.migration import MigrationAssessed, MigrationCompleted, MigrationFailed
from libs.contracts.placement import (
    AttemptFailed,
    JobCancelled,
    JobMoved,
    JobPlaced,
    JobPreempted,
    JobQueued,
    JobSucceeded,
    MoveAbandoned,
)
from libs.contracts.reasons import Reason
from libs.kernel.machine import Turn
from services.migration.core.assignments import Ended, look_soon
from services.migration.core.draining import leave_after_all, leave_drained_nodes, report_empty
from services.migration.core.state import State
from services.migration.core.table import machine


@machine.decides(JobMoved, JobPlaced)
def arrived(state: State, event: JobMoved | JobPlaced, turn: Turn[State]) -> None:
    """A moving job has its new place, live or after a restart."""
    move = state.moves.get(event.job_id)
    if move is not None and event.attempt > move.attempt:
        turn.emit(
            MigrationCompleted(
                migration_id=move.migration_id,
                job_id=event.job_id,
                attempt=event.attempt,
                to_nodes=state.assignments[event.job_id].nodes,
                live=isinstance(event, JobMoved),
            )
        )
    leave_drained_nodes(state, event.job_id, turn)
    report_empty(state, turn)


@machine.decides(MoveAbandoned)
def stayed(state: State, event: MoveAbandoned, turn: Turn[State]) -> None:
    """A job that must leave is preempted now; any other has not been moved."""
    move = state.moves.get(event.job_id)
    if move is not None and move.migration_id == event.migration_id:
        _fail_optional(state, event.job_id, event.reason, turn)


@machine.decides(JobPreempted)
def taken_off(state: State, event: JobPreempted, turn: Turn[State]) -> None:
    _fail_optional(state, event.job_id, event.reason, turn)


@machine.decides(JobQueued)
def job_queued(state: State, event: JobQueued, turn: Turn[State]) -> None:
    report_empty(state, turn)


@machine.decides(JobSucceeded, JobCancelled, AttemptFailed, JobAbandoned)
def end_the_move(state: State, event: Ended, turn: Turn[State]) -> None:
    reason = Reason(code=type(event).__name__, message="the job ended before it ran at another place")
    _fail(state, event.job_id, reason, turn)
    report_empty(state, turn)


@machine.decides(JobProfiled)
def assess(state: State, event: JobProfiled, turn: Turn[State]) -> None:
    """The first profile at the new place says what the move has brought."""
    assessment = state.assessments.get(event.job_id)
    if assessment is None or event.attempt != assessment.attempt or event.rate_per_s <= 0:
        return
    turn.emit(
        MigrationAssessed(
            migration_id=assessment.migration_id,
            job_id=event.job_id,
            attempt=event.attempt,
            before_per_s=assessment.before_per_s,
            after_per_s=event.rate_per_s,
            gain_ratio=round(event.rate_per_s / assessment.before_per_s - 1, 6),
        )
    )


@machine.evolves(MigrationCompleted)
def move_completed(state: State, event: MigrationCompleted, now_s: float) -> None:
    move = state.moves.pop(event.job_id)
    for node_id in move.from_nodes:
        if node_id in state.drains:
            state.drains[node_id].moved_jobs += 1
    look_soon(state, now_s)


@machine.evolves(MigrationFailed)
def move_failed(state: State, event: MigrationFailed, now_s: float) -> None:
    del state.moves[event.job_id]
    assignment = state.assignments.get(event.job_id)
    if assignment is not None:
        assignment.rests_until_s = now_s + state.move_rest_s
    look_soon(state, now_s)


@machine.evolves(MigrationAssessed)
def assessed(state: State, event: MigrationAssessed, now_s: float) -> None:
    del state.assessments[event.job_id]


def _fail_optional(state: State, job_id: str, reason: Reason, turn: Turn[State]) -> None:
    move = state.moves.get(job_id)
    if move is not None and not move.must_leave:
        _fail(state, job_id, reason, turn)
        if job_id in state.assignments:
            leave_after_all(state, job_id, turn)


def _fail(state: State, job_id: str, reason: Reason, turn: Turn[State]) -> None:
    move = state.moves.get(job_id)
    if move is not None:
        turn.emit(MigrationFailed(migration_id=move.migration_id, job_id=job_id, reason=reason))
