"""A move ends without success: what was reserved is free again, and the job stays where it is, or ends there."""

from __future__ import annotations

from libs.contracts.placement import MoveAbandoned, StopTask
from libs.contracts.reasons import Reason
from libs.kernel.machine import Turn
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job, Move
from services.placement.core.lifecycle import ports
from services.placement.core.lifecycle.orders import resume_orders
from services.placement.core.lifecycle.plan import carries_out, carry_out
from services.placement.core.lifecycle.suspending.pausing import frees_gpus, given_up
from services.placement.core.lifecycle.table import Look, machine

DESTINATION_FAILED = "DestinationFailed"
"""Code of a move that was given up because its destination did not come up: an elastic job is not resized again."""


def abandon(cell: Cell, job: Job, reason: Reason, turn: Turn[Cell], *, goes_on: bool) -> Look | None:
    """End the job's move, if one is under way; then others may have what was reserved for it.

    Args:
        goes_on: whether the job is to go on where it is, when it has been halted for the move; a paused one gives its
            GPUs up instead.
    """
    move = job.move
    if move is None:
        return None
    turn.emit(abandoned(job, move, reason))
    for task in move.gang:
        if task.node_id not in move.gone:
            order = StopTask(node_id=task.node_id, job_id=job.job_id, attempt=move.attempt, grace_s=0.0, reason=reason)
            turn.emit(order)
    if not goes_on or job.suspended:
        return Look()
    if frees_gpus(job):
        carry_out(cell, given_up(cell, job, turn.now_s), turn)
    elif move.halted and not job.held:
        for resume in resume_orders(cell, job):
            turn.emit(resume)
    return Look()


def abandoned(job: Job, move: Move, reason: Reason) -> MoveAbandoned:
    """The decision to end the job's move."""
    return MoveAbandoned(migration_id=move.migration_id, job_id=job.job_id, from_attempt=job.attempt, reason=reason)


@carries_out(MoveAbandoned)
def stay(cell: Cell, event: MoveAbandoned, turn: Turn[Cell]) -> None:
    """As a decision of its own: the job goes on where it is."""
    abandon(cell, cell.jobs[event.job_id], event.reason, turn, goes_on=True)


@machine.evolves(MoveAbandoned)
def move_abandoned(cell: Cell, event: MoveAbandoned, now_s: float) -> None:
    job = cell.jobs[event.job_id]
    if job.move is not None and job.move.migration_id == event.migration_id:
        cell.release(job, job.move.gang)
        ports.give_back(cell, job.move.meeting)
        cell.begun(job.job_id)
        job.move = None
    if event.reason.code == DESTINATION_FAILED:
        job.tasks.resizable = {}
