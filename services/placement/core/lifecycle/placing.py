"""A job gets GPUs, waits for them, or gives them back: the same under every mechanism."""

from __future__ import annotations

from collections.abc import Sequence

from libs.contracts.cluster import TaskPlacement
from libs.contracts.placement import JobPlaced, JobPreempted, JobQueued
from libs.contracts.reasons import Reason
from libs.kernel.machine import Turn
from services.placement.core.jobs import Job, Phase
from services.placement.core.lifecycle.abandoning import abandon
from services.placement.core.lifecycle.hearing import listeners
from services.placement.core.lifecycle.orders import launch_orders, stop_orders
from services.placement.core.lifecycle.queue import dequeue, enqueue
from services.placement.core.lifecycle.table import machine
from services.placement.core.state import State


def place(
    state: State,
    job: Job,
    gang: list[TaskPlacement],
    reason: Reason,
    turn: Turn[State],
    packed_with: Sequence[str] = (),
) -> None:
    """Give the gang to the queued job and order its tasks to be launched.

    Args:
        packed_with: jobs that may hold the same GPUs at the same time.
    """
    orders = launch_orders(state, job, gang, job.attempt, packed_with)
    placed = JobPlaced(job_id=job.job_id, attempt=job.attempt, gang=gang, packed_with=list(packed_with), reason=reason)
    turn.emit(placed)
    for order in orders:
        turn.emit(order)


def tell(state: State, job: Job, reason: Reason, turn: Turn[State]) -> None:
    """Once per cause: a reason whose code has not changed is not repeated."""
    if reason.code != job.wait_code:
        turn.emit(JobQueued(job_id=job.job_id, attempt=job.attempt, reason=reason))


def preempt(state: State, job: Job, reason: Reason, turn: Turn[State]) -> None:
    """Take the attempt off its GPUs; it is queued again when its tasks have ended."""
    abandon(job, reason, turn, goes_on=False)
    stopping = job.stopping
    turn.emit(JobPreempted(job_id=job.job_id, attempt=job.attempt, reason=reason))
    if not stopping:
        stop_all(state, job, state.stop_grace_s, reason, turn)


def stop_all(state: State, job: Job, grace_s: float, reason: Reason, turn: Turn[State]) -> None:
    """Order every task that has not ended to stop."""
    for order in stop_orders(job, grace_s, reason):
        turn.emit(order)


@machine.evolves(JobQueued)
def job_queued(state: State, event: JobQueued, now_s: float) -> None:
    """A higher attempt number says that the job has left its GPUs and waits again."""
    job = state.jobs[event.job_id]
    if event.attempt > job.attempt:
        clear_attempt(state, job, now_s)
        job.phase, job.attempt, job.queued_since_s = Phase.QUEUED, event.attempt, now_s
        if not job.held:
            enqueue(state, job)
    job.wait_code = event.reason.code


@machine.evolves(JobPlaced)
def job_placed(state: State, event: JobPlaced, now_s: float) -> None:
    job = state.jobs[event.job_id]
    state.looked_s = now_s
    dequeue(state, job)
    job.phase, job.gang, job.wait_code = Phase.ACTIVE, event.gang, ""
    state.hold(job, job.gang)
    for listener in listeners:
        listener.placed(state, job, now_s)
    use_port(state, event.gang)


def use_port(state: State, gang: list[TaskPlacement]) -> None:
    """A gang on several nodes meets at its first node's next port: another gang takes the one after it."""
    if len(gang) > 1:
        first = state.nodes[gang[0].node_id]
        first.next_port = first.next_port + 1 if first.next_port < first.ports.last else first.ports.first


def clear_attempt(state: State, job: Job, now_s: float) -> None:
    """The job's GPUs are free again and nothing of the attempt is left but what the next one can go on from."""
    for listener in listeners:
        listener.leaving(state, job, now_s)
    state.release(job, job.gang)
    if not job.spec.restartable:
        job.steps_done = 0.0
    job.gang, job.started, job.exits, job.suspended = [], {}, {}, False
    job.movable, job.resizable, job.still, job.must_leave = {}, {}, {}, None
    job.leaving, job.stopping, job.wait_code = None, False, ""


def forget(state: State, job: Job, now_s: float) -> None:
    """The job has ended."""
    dequeue(state, job)
    withdraw(state, job)
    clear_attempt(state, job, now_s)
    for listener in listeners:
        listener.ended(state, job)
    del state.jobs[job.job_id]


def withdraw(state: State, job: Job) -> None:
    """The job does not want a place that may have been kept for it."""
    for listener in listeners:
        listener.withdrawn(state, job)
