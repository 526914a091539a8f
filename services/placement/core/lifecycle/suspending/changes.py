"""Jobs on a server change places without leaving it: which stand still from now on, which go on, and the orders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from libs.contracts.cluster import TaskPlacement
from libs.contracts.placement import ResumedJob, ResumeTask, TimeSliceStarted
from libs.contracts.reasons import Reason
from libs.kernel.machine import Turn
from services.placement.core.cell import Cell, Slice
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.hearing import listeners
from services.placement.core.lifecycle.orders import suspend_orders
from services.placement.core.lifecycle.plan import carries_out, occupied, tries
from services.placement.core.lifecycle.suspending.domains import Domain, domain_of
from services.placement.core.lifecycle.table import machine
from services.placement.core.promises import shortage


@dataclass(frozen=True)
class Assignment:
    """A job's place from now on."""

    job: Job
    gang: list[TaskPlacement]
    packed_with: list[str]


def slice_of(cell: Cell, domain: Domain) -> Slice:
    """The latest turn on these servers."""
    return cell.slices.get(domain.name, Slice())


def places_changed(
    cell: Cell,
    domain: Domain,
    *,
    running: Sequence[Job],
    suspended: Sequence[Job] = (),
    resumed: Sequence[Assignment] = (),
    started: Sequence[Job] = (),
    ends_s: float,
    reason: Reason,
) -> TimeSliceStarted:
    """The decision that jobs change places. The agent lets no task in before those that are to leave have left.

    Args:
        cell: says how often that has happened here.
        domain: the servers.
        running: jobs that go on where they are.
        suspended: jobs that stand still.
        resumed: jobs that go on where they are given a assignment.
        started: jobs that are placed here next.
        ends_s: until when no job has to make room.
        reason: why.
    """
    return TimeSliceStarted(
        server=domain.name,
        nodes=[node.node_id for node in domain.nodes],
        number=slice_of(cell, domain).number + 1,
        ends_s=ends_s,
        running=[job.job_id for job in running],
        resumed=[
            ResumedJob(job_id=assignment.job.job_id, gang=assignment.gang, packed_with=assignment.packed_with)
            for assignment in resumed
        ],
        suspended=[job.job_id for job in suspended],
        started=[job.job_id for job in started],
        reason=reason,
    )


def suspended(cell: Cell, domain: Domain, jobs: Sequence[Job], *, ends_s: float, reason: Reason) -> TimeSliceStarted:
    """The decision that jobs of these servers stand still there, and others may have their GPUs."""
    running = [other for other in domain.residents if other.stays and other not in jobs]
    return places_changed(cell, domain, running=running, suspended=jobs, ends_s=ends_s, reason=reason)


def resumed(
    cell: Cell, job: Job, gang: list[TaskPlacement], packed_with: list[str], *, ends_s: float, reason: Reason
) -> TimeSliceStarted:
    """The decision that a suspended job gets these GPUs of its servers."""
    domain = domain_of(cell, job)
    running = [other for other in domain.residents if other.stays]
    assignment = Assignment(job, gang, packed_with)
    return places_changed(cell, domain, running=running, resumed=[assignment], ends_s=ends_s, reason=reason)


@tries(TimeSliceStarted)
def no_room(cell: Cell, event: TimeSliceStarted) -> str | None:
    """Jobs that leave must have GPUs to leave; those that come find them free of all but these and their companions."""
    for job_id in event.suspended:
        job = cell.jobs.get(job_id)
        if job is None or not job.gang or job.suspended:
            return f"job {job_id} is to be suspended and does not run"
    leaving = [*event.suspended, *(each.job_id for each in event.resumed)]
    for each in event.resumed:
        job = cell.jobs.get(each.job_id)
        if job is None or not job.gang:
            return f"job {each.job_id} is to go on and has not begun"
        why_not = occupied(cell, each.gang, [*leaving, *each.packed_with])
        if why_not is not None:
            return f"job {each.job_id} is to go on where it cannot: {why_not}"
    return shortage(cell, [(cell.jobs[each.job_id], each.gang) for each in event.resumed], leaving)


@carries_out(TimeSliceStarted)
def change_places(cell: Cell, event: TimeSliceStarted, turn: Turn[Cell]) -> None:
    """Have the tasks suspended and resumed."""
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
                )
            )


@machine.evolves(TimeSliceStarted)
def time_slice_started(cell: Cell, event: TimeSliceStarted, now_s: float) -> None:
    cell.begin_slice(event.server, Slice(number=event.number, ends_s=event.ends_s))
    for job_id in event.suspended:
        job = cell.jobs[job_id]
        for listener in listeners:
            listener.suspending(cell, job, now_s)
        cell.release(job, job.gang)
        cell.suspend(job)
        if job.move is not None:
            job.move.halted = True
    for assignment in event.resumed:
        job = cell.jobs[assignment.job_id]
        cell.release(job, job.gang)
    for assignment in event.resumed:
        job = cell.jobs[assignment.job_id]
        for listener in listeners:
            listener.moving(cell, job, now_s)
        cell.give(job, assignment.gang)
        cell.suspend(job, suspended=False)
        job.wait_code = ""
        if job.move is not None:
            job.move.halted = False
        cell.hold(job, job.gang)
        for listener in listeners:
            listener.resumed(cell, job, now_s)
