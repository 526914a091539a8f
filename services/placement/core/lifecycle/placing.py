"""A job gets GPUs, waits for them, or gives them back: the same under every mechanism."""

from __future__ import annotations

from collections.abc import Sequence

from libs.contracts.cluster import TaskPlacement
from libs.contracts.placement import JobPlaced, JobPreempted, JobQueued
from libs.contracts.reasons import Reason
from libs.kernel.machine import Turn
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job, Phase, Tasks
from services.placement.core.lifecycle.abandoning import abandon
from services.placement.core.lifecycle.hearing import listeners
from services.placement.core.lifecycle.orders import launch_orders, stop_orders
from services.placement.core.lifecycle.queue import dequeue, enqueue, told
from services.placement.core.lifecycle.table import machine


def place(
    cell: Cell,
    job: Job,
    gang: list[TaskPlacement],
    reason: Reason,
    turn: Turn[Cell],
    packed_with: Sequence[str] = (),
) -> None:
    """Give the gang to the queued job and order its tasks to be launched.

    Args:
        packed_with: jobs that may hold the same GPUs at the same time.
    """
    orders = launch_orders(cell, job, gang, job.attempt, packed_with)
    placed = JobPlaced(job_id=job.job_id, attempt=job.attempt, gang=gang, packed_with=list(packed_with), reason=reason)
    turn.emit(placed)
    for order in orders:
        turn.emit(order)


def tell(cell: Cell, job: Job, reason: Reason, turn: Turn[Cell]) -> None:
    """Once per cause: a reason with the same code is not repeated."""
    if reason.code != job.wait_code:
        turn.emit(JobQueued(job_id=job.job_id, attempt=job.attempt, reason=reason))


def preempt(cell: Cell, job: Job, reason: Reason, turn: Turn[Cell]) -> None:
    """Take the attempt off its GPUs; it is queued again when its tasks have ended."""
    abandon(job, reason, turn, goes_on=False)
    stopping = job.stopping
    turn.emit(JobPreempted(job_id=job.job_id, attempt=job.attempt, reason=reason))
    if not stopping:
        stop_all(cell, job, cell.settings.stop_grace_s, reason, turn)


def stop_all(cell: Cell, job: Job, grace_s: float, reason: Reason, turn: Turn[Cell]) -> None:
    """Order every task that has not ended to stop."""
    for order in stop_orders(job, grace_s, reason):
        turn.emit(order)


@machine.evolves(JobQueued)
def job_queued(cell: Cell, event: JobQueued, now_s: float) -> None:
    """A higher attempt number says that the job has left its GPUs and waits again."""
    job = cell.jobs[event.job_id]
    if event.attempt > job.attempt:
        clear_attempt(cell, job, now_s)
        job.phase, job.attempt, job.queued_since_s = Phase.QUEUED, event.attempt, now_s
        if not job.held:
            enqueue(cell, job)
    job.wait_code = event.reason.code
    told(cell, job)


@machine.evolves(JobPlaced)
def job_placed(cell: Cell, event: JobPlaced, now_s: float) -> None:
    job = cell.jobs[event.job_id]
    cell.looked_s = now_s
    dequeue(cell, job)
    job.phase, job.wait_code = Phase.ACTIVE, ""
    cell.give(job, event.gang)
    cell.hold(job, job.gang)
    for listener in listeners:
        listener.placed(cell, job, now_s)
    use_port(cell, event.gang)


def use_port(cell: Cell, gang: list[TaskPlacement]) -> None:
    """A gang on several nodes meets at its first node's next port: another gang takes the one after it."""
    if len(gang) > 1:
        first = cell.nodes[gang[0].node_id]
        first.next_port = first.next_port + 1 if first.next_port < first.ports.last else first.ports.first


def clear_attempt(cell: Cell, job: Job, now_s: float) -> None:
    """The job's GPUs are free again and nothing of the attempt is left but what the next one can go on from."""
    for listener in listeners:
        listener.leaving(cell, job, now_s)
    cell.release(job, job.gang)
    if not job.spec.restartable:
        job.account.steps_done = 0.0
    cell.give(job, [])
    job.tasks, job.suspended, job.must_leave = Tasks(), False, None
    job.leaving, job.stopping, job.wait_code = None, False, ""


def forget(cell: Cell, job: Job, now_s: float) -> None:
    """The job has ended."""
    dequeue(cell, job)
    withdraw(cell, job)
    clear_attempt(cell, job, now_s)
    for listener in listeners:
        listener.ended(cell, job)
    del cell.jobs[job.job_id]


def withdraw(cell: Cell, job: Job) -> None:
    """The job does not want a place that may have been kept for it."""
    for listener in listeners:
        listener.withdrawn(cell, job)
