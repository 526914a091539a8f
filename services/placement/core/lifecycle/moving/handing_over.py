"""From the start of the destination's tasks to the end of the source's: no task goes on twice, nothing is lost.

    destination reserved, tasks launched ──all ready──> source halted ──all still──> states fetched and loaded
        ──all restored──> JobMoved: the source's tasks end, the destination's go on

Until JobMoved the source has everything, and any trouble at the destination lets it go on; from then on the
destination has everything, and the source's tasks, which have not moved since, end without another step.
"""

from __future__ import annotations

from typing import NamedTuple

from libs.contracts.agent import JobExited, JobReady, JobRestored, JobStarted, JobSuspended
from libs.contracts.placement import JobMoved, JobResized
from libs.contracts.reasons import Reason
from libs.kernel.machine import Turn
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job, Move, Tasks
from services.placement.core.lifecycle import ports
from services.placement.core.lifecycle.abandoning import DESTINATION_FAILED, abandon
from services.placement.core.lifecycle.hearing import heard_by
from services.placement.core.lifecycle.orders import restore_orders, resume_orders, stop_orders, suspend_orders
from services.placement.core.lifecycle.placing import preempt, preempted
from services.placement.core.lifecycle.table import Look, machine, reacts


def move_to(cell: Cell, job_id: str, attempt: int) -> Move | None:
    """The job's move, if this attempt is the one that is to take over."""
    job = cell.jobs.get(job_id)
    move = job.move if job is not None else None
    return move if move is not None and move.attempt == attempt else None


def give_up(cell: Cell, job: Job, reason: Reason, turn: Turn[Cell]) -> None:
    """The live move has failed: the job goes on where it is, or is stopped and queued if it must not stay.

    Nor does it go on when the node for which the move is given up has had one of its own tasks: its attempt ends next.
    """
    leaving = job.must_leave if job.lasts and job.cancellation is None else None
    is_whole = all(cell.nodes[task.node_id].present and task.node_id not in job.tasks.exits for task in job.gang)
    abandon(cell, job, reason, turn, goes_on=leaving is None and is_whole)
    if leaving is not None:
        preempt(cell, preempted(job, leaving), turn)


class HandOver(NamedTuple):
    """What a fact means for the move of its job."""

    halts: bool = False
    """The source is to stand still from now on."""
    fetches: bool = False
    """The destination is to fetch the state of the source, which stands still."""


def advance(cell: Cell, job_id: str) -> HandOver:
    """When the destination waits, the source is halted; when that stands still, its state is fetched."""
    job = cell.jobs.get(job_id)
    if job is None or job.move is None or job.move.fetching or not job.move.is_ready:
        return HandOver()
    halts = not (job.move.halted or job.suspended or job.held)
    job.move.halted = job.move.halted or halts
    # Agents say nothing when they are told to suspend what has not gone on since: then it stands still already.
    job.move.fetching = all(task.node_id in job.tasks.still for task in job.gang)
    return HandOver(halts, job.move.fetching)


@machine.evolves(JobReady)
def destination_ready(cell: Cell, event: JobReady, now_s: float) -> HandOver:
    move = move_to(cell, event.job_id, event.attempt)
    if move is not None:
        move.ready[event.node_id] = None
    return advance(cell, event.job_id)


@machine.evolves(JobRestored)
def destination_restored(cell: Cell, event: JobRestored, now_s: float) -> None:
    move = move_to(cell, event.job_id, event.attempt)
    if move is not None:
        move.restored[event.node_id] = None


def destination_started(cell: Cell, event: JobStarted) -> None:
    """Note the start of a task that is to take over, if it is one."""
    move = move_to(cell, event.job_id, event.attempt)
    if move is not None:
        move.started[event.node_id] = None
        if move.has_started:
            cell.begun(event.job_id)


def destination_ended(cell: Cell, event: JobExited) -> None:
    """Note the end of a task that was to take over, if it was one."""
    move = move_to(cell, event.job_id, event.attempt)
    if move is not None:
        move.gone[event.node_id] = None


def destination_failed(cell: Cell, event: JobExited, turn: Turn[Cell]) -> bool:
    """Give the move up if the task was to take over; whether it was."""
    if move_to(cell, event.job_id, event.attempt) is None:
        return False
    why = event.stderr_tail.strip().splitlines()[-1:] or [event.outcome]
    message = f"the new task on {event.node_id} has ended: {why[0]}"
    give_up(cell, cell.jobs[event.job_id], Reason(code=DESTINATION_FAILED, message=message), turn)
    return True


@machine.decides(JobReady)
def hand_over(cell: Cell, event: JobReady | JobSuspended, turn: Turn[Cell]) -> None:
    """Give the orders that follow from what `advance` has found; of JobSuspended it is asked by `attempts.py`."""
    step: HandOver = turn.changed
    job = cell.jobs.get(event.job_id)
    if job is None or job.move is None:
        return
    if step.halts:
        for suspend in suspend_orders(job):
            turn.emit(suspend)
    if step.fetches:
        for restore in restore_orders(cell, job, job.move):
            turn.emit(restore)


@reacts(JobRestored)
def switch_over(cell: Cell, event: JobRestored, turn: Turn[Cell]) -> Look | None:
    """The last task of the destination has its state: from here on the job is there."""
    move = move_to(cell, event.job_id, event.attempt)
    if move is None or not move.is_restored:
        return None
    job = cell.jobs[event.job_id]
    before = job.attempt
    where = ", ".join(task.node_id for task in move.gang)
    # A state is taken over into the memory of the GPUs, where a paused job's stays until it has gone on once.
    does = "stays paused, with its memory on the GPUs of" if job.held else "goes on on"
    reason = Reason(code="StateTakenOver", message=f"{does} {where} with the state of attempt {before}")
    stops = stop_orders(job, 0.0, reason)
    resized = JobResized(
        job_id=job.job_id, attempt=move.attempt, from_gpus=job.width, gpus=move.width, reason=move.reason
    )
    turn.emit(
        JobMoved(
            migration_id=move.migration_id,
            job_id=job.job_id,
            from_attempt=before,
            attempt=move.attempt,
            gang=move.gang,
            reason=reason,
        )
    )
    if resized.gpus != resized.from_gpus:
        turn.emit(resized)
    for stop in stops:
        turn.emit(stop)
    if not job.held:
        for resume in resume_orders(cell, job):
            turn.emit(resume)
    return Look()


@machine.evolves(JobMoved)
def job_moved(cell: Cell, event: JobMoved, now_s: float) -> None:
    """The destination's GPUs are the job's since they were reserved; the source's are free."""
    job = cell.jobs[event.job_id]
    for listener in heard_by(job):
        listener.moving(cell, job, now_s)
    if not job.suspended:
        cell.release(job, job.gang)
    nodes = [task.node_id for task in event.gang]
    job.tasks = Tasks(
        started=dict.fromkeys(nodes),
        still=dict.fromkeys(nodes),
        on_gpu=dict.fromkeys(nodes),
        movable=dict.fromkeys(nodes),
        resizable=dict.fromkeys(nodes) if job.tasks.resizable else {},
    )
    cell.give(job, event.gang)
    ports.give_back(cell, job.meeting)
    job.meeting = job.move.meeting if job.move is not None else None
    cell.suspend(job, suspended=False)
    cell.begun(job.job_id)
    job.since_s = now_s
    job.attempt, job.move, job.must_leave = event.attempt, None, None
    for listener in heard_by(job):
        listener.moved(cell, job, now_s)
