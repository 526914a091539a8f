"""A job gets GPUs, waits for them, or gives them back: the same under every mechanism."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from libs.contracts.cluster import TaskPlacement
from libs.contracts.features import described, missing
from libs.contracts.placement import JobPlaced, JobPreempted, JobQueued, Role
from libs.contracts.reasons import PendingReason, Reason
from libs.kernel.machine import Turn
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job, Phase, Tasks
from services.placement.core.lifecycle import avoiding, ports
from services.placement.core.lifecycle.abandoning import abandon
from services.placement.core.lifecycle.hearing import heard_by
from services.placement.core.lifecycle.orders import launch_orders, stop_orders
from services.placement.core.lifecycle.plan import Plan, carries_out, carry_out, occupied, tries
from services.placement.core.lifecycle.queue import dequeue, enqueue, knows
from services.placement.core.lifecycle.suspending.yielding import beside_guests, no_seat
from services.placement.core.lifecycle.table import machine
from services.placement.core.promises import shortage


class InLine(NamedTuple):
    """Where a job stands, as JobQueued says it."""

    line: str = ""
    leads: bool = False
    behind: str = ""


ALONE = InLine()
"""In no line."""


def placed(job: Job, gang: list[TaskPlacement], reason: Reason, packed_with: Sequence[str] = ()) -> JobPlaced:
    """The decision that the queued job gets the gang.

    Args:
        packed_with: jobs that may hold the same GPUs at the same time.
    """
    reason = avoiding.told_with(job, reason)
    return JobPlaced(job_id=job.job_id, attempt=job.attempt, gang=gang, packed_with=list(packed_with), reason=reason)


@tries(JobPlaced)
def no_room(cell: Cell, event: JobPlaced) -> str | None:
    """The GPUs must be free but for the jobs that it is packed with, healthy, and on nodes that take new jobs.

    A guest needs no free GPUs, but seats.
    """
    if event.role == Role.GUEST:
        why_not = no_seat(cell, cell.jobs[event.job_id], event.gang)
    else:
        why_not = occupied(cell, event.gang, event.packed_with)
    if why_not is not None:
        return why_not
    for task in event.gang:
        node = cell.nodes[task.node_id]
        if not node.usable:
            return f"node {task.node_id} takes no new job"
        if not node.are_healthy(task.gpu_indices):
            sick = next(index for index in task.gpu_indices if not node.is_healthy(index))
            return f"GPU {task.node_id}:{sick} is not healthy"
        if lacks := missing(cell.jobs[event.job_id].needs, node.features, node.node_id):
            return f"node {task.node_id} has not {described(lacks)}"
    return shortage(cell, [(cell.jobs[event.job_id], event.gang)])


@carries_out(JobPlaced)
def place(cell: Cell, event: JobPlaced, turn: Turn[Cell]) -> None:
    """Have its tasks launched; guests make room for an owner. A gang that cannot meet waits for another to end."""
    job = cell.jobs[event.job_id]
    if (why_not := ports.none_left(cell, event.gang)) is not None:
        carry_out(cell, told(job, why_not), turn)
        return
    if event.role == Role.OWNER and (staying := beside_guests(cell, job, event.gang, turn)):
        event = replace(event, packed_with=[*event.packed_with, *staying])
    orders = launch_orders(cell, job, event.gang, event.attempt, event.packed_with)
    turn.emit(event)
    for order in orders:
        turn.emit(order)


def told(job: Job, reason: Reason, place: InLine = ALONE) -> Plan:
    """The decision to tell the job why it waits, and where it stands. Once per cause: the same is not repeated."""
    waits_for = ""
    if job.trial is not None:
        waits_for = reason.code
        reason = replace(reason, code=PendingReason.TRIAL_PENDING, message=f"its trial waits: {reason.message}")
    said = JobQueued(
        job_id=job.job_id,
        attempt=job.attempt,
        reason=reason,
        behind=place.behind,
        line=place.line,
        leads=place.leads,
        waits_for=waits_for,
    )
    if cause_of(said) != job.wait_code:
        yield said


def cause_of(event: JobQueued) -> str:
    """What is remembered of it: `Job.wait_code`."""
    return wait_code(
        event.waits_for or event.reason.code, InLine(line=event.line, leads=event.leads, behind=event.behind)
    )


def wait_code(code: str, place: InLine) -> str:
    """The cause; of a job that leads a line and is itself behind another one, with that one's name."""
    return f"{code}:{place.behind}" if place.leads and place.behind else code


def behind_in(code: str) -> str:
    """The job that such a cause names; empty: none."""
    return code.partition(":")[2]


def leave_queue(cell: Cell, job: Job, code: str, turn: Turn[Cell]) -> None:
    """Say what follows when the job does not wait for GPUs any more, and gets none; `code` says why."""
    for listener in heard_by(job):
        carry_out(cell, listener.unqueued(cell, job, code), turn)


def preempted(job: Job, reason: Reason) -> JobPreempted:
    """The decision to take the attempt off its GPUs; the job is queued again when its tasks have ended."""
    return JobPreempted(job_id=job.job_id, attempt=job.attempt, reason=reason)


@carries_out(JobPreempted)
def preempt(cell: Cell, event: JobPreempted, turn: Turn[Cell]) -> None:
    """End a move that is under way, and have the tasks stopped, unless they are being stopped already."""
    job = cell.jobs[event.job_id]
    abandon(cell, job, event.reason, turn, goes_on=False)
    stopping = job.stopping
    turn.emit(event)
    if not stopping:
        # A guest that stands still in an owner's way, or on its way out of it, has had its time.
        grace_s = 0.0 if job.guest and job.suspended else cell.settings.stop_grace_s
        stop_all(cell, job, grace_s, event.reason, turn)


def stop_all(cell: Cell, job: Job, grace_s: float, reason: Reason, turn: Turn[Cell]) -> None:
    """Order every task that has not ended to stop."""
    for order in stop_orders(job, grace_s, reason):
        turn.emit(order)


@machine.evolves(JobQueued)
def job_queued(cell: Cell, event: JobQueued, now_s: float) -> None:
    """A higher attempt number says that the job has left its GPUs and waits again; a victim waits for quota first.

    One that is suspended waits for it where it stands. Else that attempt of a victim is one of quota's to grant: it
    counts as not had here, as a retry's does.
    """
    job = cell.jobs[event.job_id]
    if event.suspended:
        withdraw(cell, job)
        cell.affects(job)
    elif event.returns_to_quota:
        dequeue(cell, job)
        withdraw(cell, job)
        clear_attempt(cell, job, now_s)
        job.phase = Phase.WAITING
    elif event.attempt > job.attempt:
        clear_attempt(cell, job, now_s)
        job.phase, job.attempt, job.queued_since_s = Phase.QUEUED, event.attempt, now_s
        if event.tried:
            job.phase = Phase.TRIED
        elif not job.held:
            enqueue(cell, job)
    knows(cell, job, cause_of(event))


@machine.evolves(JobPlaced)
def job_placed(cell: Cell, event: JobPlaced, now_s: float) -> None:
    job = cell.jobs[event.job_id]
    if event.role == Role.OWNER:
        # Guests may have been looked at alone: what the mechanism in force waits for is due still.
        cell.looked_s = now_s
    dequeue(cell, job)
    cell.acquiring.pop(job.job_id, None)
    job.phase, job.wait_code, job.since_s = Phase.ACTIVE, "", now_s
    job.guest = event.role == Role.GUEST
    cell.give(job, event.gang)
    cell.hold(job, job.gang)
    cell.begins(job.job_id, now_s)
    for listener in heard_by(job):
        listener.placed(cell, job, now_s)
    job.meeting = ports.take(cell, event.gang)


def clear_attempt(cell: Cell, job: Job, now_s: float) -> None:
    """The job's GPUs are free again and nothing of the attempt is left but what the next one can go on from."""
    for listener in heard_by(job):
        listener.leaving(cell, job, now_s)
    cell.release(job, job.gang)
    ports.give_back(cell, job.meeting)
    job.meeting = None
    if not job.spec.restartable:
        job.account.begin_anew()
    cell.give(job, [])
    if job.suspended:
        cell.suspend(job, suspended=False)
    cell.begun(job.job_id)
    job.tasks, job.must_leave = Tasks(), None
    job.leaving, job.stopping, job.wait_code = None, False, ""
    job.returns_to_quota = False
    job.guest = job.offered = False
    job.expelled_by = {}


def forget(cell: Cell, job: Job, now_s: float) -> None:
    """The job has ended."""
    dequeue(cell, job)
    cell.acquiring.pop(job.job_id, None)
    withdraw(cell, job)
    clear_attempt(cell, job, now_s)
    avoiding.avoid(cell, job, [])
    for listener in heard_by(job):
        listener.ended(cell, job)
    del cell.jobs[job.job_id]


def withdraw(cell: Cell, job: Job) -> None:
    """The job does not want a place that may have been kept for it."""
    for listener in heard_by(job):
        listener.withdrawn(cell, job)
