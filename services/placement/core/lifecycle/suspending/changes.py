"""Jobs on a server change places without leaving it: which stand still from now on, which go on, and the orders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from libs.contracts.cluster import TaskPlacement
from libs.contracts.placement import ResumeTask, SuspendTask, TimeSliceStarted
from libs.contracts.placement import SliceSeat as Resumed
from libs.contracts.reasons import Reason
from libs.kernel.machine import Turn
from services.placement.core.cell import Cell, Slice
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.hearing import listeners
from services.placement.core.lifecycle.orders import suspend_orders
from services.placement.core.lifecycle.suspending.domains import Domain, domains
from services.placement.core.lifecycle.table import machine


@dataclass(frozen=True)
class Assignment:
    """A job's place from now on."""

    job: Job
    gang: list[TaskPlacement]
    packed_with: list[str]


def slice_of(cell: Cell, domain: Domain) -> Slice:
    """The latest turn on these servers."""
    return cell.slices.get(domain.name, Slice())


def change_places(
    cell: Cell,
    domain: Domain,
    *,
    running: Sequence[Job],
    suspended: Sequence[Job] = (),
    resumed: Sequence[Assignment] = (),
    started: Sequence[Job] = (),
    ends_s: float,
    reason: Reason,
    turn: Turn[Cell],
) -> None:
    """Say it and order it. The agent lets no task in before those that are to leave have left.

    Args:
        cell: says how often that has happened here.
        domain: the servers.
        running: jobs that go on where they are.
        suspended: jobs that stand still.
        resumed: jobs that go on where they are given a assignment.
        started: jobs that are placed here next.
        ends_s: until when no job has to make room.
        reason: why.
        turn: where it is said.
    """
    turn.emit(
        TimeSliceStarted(
            server=domain.name,
            nodes=[node.node_id for node in domain.nodes],
            number=slice_of(cell, domain).number + 1,
            ends_s=ends_s,
            running=[job.job_id for job in running],
            resumed=[
                Resumed(job_id=assignment.job.job_id, gang=assignment.gang, packed_with=assignment.packed_with)
                for assignment in resumed
            ],
            suspended=[job.job_id for job in suspended],
            started=[job.job_id for job in started],
            reason=reason,
        )
    )
    for order in _orders(suspended, resumed):
        turn.emit(order)


def resume(
    cell: Cell,
    job: Job,
    gang: list[TaskPlacement],
    packed_with: list[str],
    *,
    ends_s: float,
    reason: Reason,
    turn: Turn[Cell],
) -> None:
    """Give a suspended job these GPUs of its servers."""
    domain = next(domain for domain in domains(cell) if job in domain.residents)
    running = [other for other in domain.residents if other.stays]
    assignment = Assignment(job, gang, packed_with)
    change_places(cell, domain, running=running, resumed=[assignment], ends_s=ends_s, reason=reason, turn=turn)


def _orders(suspended: Sequence[Job], resumed: Sequence[Assignment]) -> Iterator[SuspendTask | ResumeTask]:
    for job in suspended:
        yield from suspend_orders(job)
    for assignment in resumed:
        for task in assignment.gang:
            yield ResumeTask(
                node_id=task.node_id,
                job_id=assignment.job.job_id,
                attempt=assignment.job.attempt,
                gpu_indices=task.gpu_indices,
                packed_with=assignment.packed_with,
            )


@machine.evolves(TimeSliceStarted)
def places_changed(cell: Cell, event: TimeSliceStarted, now_s: float) -> None:
    cell.slices[event.server] = Slice(number=event.number, ends_s=event.ends_s)
    for job_id in event.suspended:
        job = cell.jobs[job_id]
        for listener in listeners:
            listener.suspending(cell, job, now_s)
        cell.release(job, job.gang)
        job.suspended = True
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
        job.suspended = False
        if job.move is not None:
            job.move.halted = False
        cell.hold(job, job.gang)
        for listener in listeners:
            listener.resumed(cell, job, now_s)
