"""Jobs on a server change places without leaving it: which stand still from now on, which go on, and the orders."""

from __future__ import annotations

from msgspec.structs import replace

from libs.contracts.placement import ResumedJob, ResumeTask, TimeSliceStarted
from libs.kernel.machine import Turn
from services.placement.core.cell import Cell, Slice
from services.placement.core.lifecycle.hearing import heard_by
from services.placement.core.lifecycle.orders import suspend_orders
from services.placement.core.lifecycle.plan import carries_out, occupied, tries
from services.placement.core.lifecycle.suspending.returning import can_return
from services.placement.core.lifecycle.suspending.yielding import beside_guests, no_seat
from services.placement.core.lifecycle.table import machine
from services.placement.core.promises import shortage


@tries(TimeSliceStarted)
def no_room(cell: Cell, event: TimeSliceStarted) -> str | None:
    """Jobs that leave must have GPUs to leave; those that come find them free of all but these and their companions.

    A guest needs no free GPUs, but a seat.
    """
    for job_id in event.suspended:
        job = cell.jobs.get(job_id)
        if job is None or not job.gang or job.suspended:
            return f"job {job_id} is to be suspended and does not run"
    leaving = [*event.suspended, *(each.job_id for each in event.resumed)]
    for each in event.resumed:
        job = cell.jobs.get(each.job_id)
        if job is None or not job.gang:
            return f"job {each.job_id} is to go on and has not begun"
        if not can_return(cell.nodes, job, each.gang):
            return f"job {each.job_id} is to go on where its processes are not"
        if job.guest:
            why_not = no_seat(cell, job, each.gang)
        else:
            why_not = occupied(cell, each.gang, [*leaving, *each.packed_with])
        if why_not is not None:
            return f"job {each.job_id} is to go on where it cannot: {why_not}"
    return shortage(cell, [(cell.jobs[each.job_id], each.gang) for each in event.resumed], leaving)


@carries_out(TimeSliceStarted)
def change_places(cell: Cell, event: TimeSliceStarted, turn: Turn[Cell]) -> None:
    """Have the tasks suspended and resumed; guests make room for what goes on."""
    if event.resumed:
        resumed = [_beside_guests(cell, each, turn) for each in event.resumed]
        event = replace(event, resumed=resumed, number=cell.slices.get(event.server, Slice()).number + 1)
    turn.emit(event)
    for job_id in event.suspended:
        # A paused job was ordered to stand still when its user asked for it.
        for order in () if cell.jobs[job_id].held else suspend_orders(cell.jobs[job_id]):
            turn.emit(order)
    for each in event.resumed:
        for task in each.gang:
            turn.emit(
                ResumeTask(
                    node_id=task.node_id,
                    job_id=each.job_id,
                    attempt=cell.jobs[each.job_id].attempt,
                    gpu_indices=task.gpu_indices,
                    packed_with=each.packed_with,
                    role=cell.jobs[each.job_id].role,
                )
            )


def _beside_guests(cell: Cell, each: ResumedJob, turn: Turn[Cell]) -> ResumedJob:
    """The same with the guests that stay on its GPUs; a guest goes on as the guests' layer has decided."""
    if cell.jobs[each.job_id].guest:
        return each
    staying = beside_guests(cell, cell.jobs[each.job_id], each.gang, turn)
    return replace(each, packed_with=[*each.packed_with, *staying]) if staying else each


@machine.evolves(TimeSliceStarted)
def time_slice_started(cell: Cell, event: TimeSliceStarted, now_s: float) -> None:
    cell.begin_slice(event.server, Slice(number=event.number, ends_s=event.ends_s))
    for job_id in event.suspended:
        job = cell.jobs[job_id]
        for listener in heard_by(job):
            listener.suspending(cell, job, now_s)
        cell.release(job, job.gang)
        cell.suspend(job)
        job.since_s, job.offered = now_s, False
        if job.move is not None:
            job.move.halted = True
    for assignment in event.resumed:
        job = cell.jobs[assignment.job_id]
        cell.release(job, job.gang)
    for assignment in event.resumed:
        job = cell.jobs[assignment.job_id]
        for listener in heard_by(job):
            listener.moving(cell, job, now_s)
        cell.give(job, assignment.gang)
        cell.suspend(job, suspended=False)
        job.wait_code, job.since_s = "", now_s
        if job.move is not None:
            job.move.halted = False
        cell.hold(job, job.gang)
        begun = all(task.node_id in job.tasks.started for task in job.gang)
        if not (begun or job.job_id in cell.starting or job.job_id in cell.preparing):
            cell.begins(job.job_id, now_s)  # it stood still when its time was over
        for listener in heard_by(job):
            listener.resumed(cell, job, now_s)
