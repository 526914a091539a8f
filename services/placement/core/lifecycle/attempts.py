"""A running attempt: its tasks start and end, and the job with them."""

from __future__ import annotations

from libs.contracts.agent import JobExited, JobMovable, JobResumed, JobStarted, JobSuspended
from libs.contracts.placement import AttemptFailed, JobPreempted, JobQueued, JobSucceeded, StopTask
from libs.contracts.reasons import Reason
from libs.kernel.machine import Turn
from services.placement.core.cell import Cell
from services.placement.core.jobs import Alarm, Job, Phase, TaskExit
from services.placement.core.lifecycle import strays
from services.placement.core.lifecycle.abandoning import abandon
from services.placement.core.lifecycle.arrivals import cancelled, on_hold
from services.placement.core.lifecycle.current import active, expects
from services.placement.core.lifecycle.hearing import heard_by
from services.placement.core.lifecycle.moving.handing_over import (
    HandOver,
    advance,
    destination_ended,
    destination_failed,
    destination_started,
    hand_over,
)
from services.placement.core.lifecycle.placing import (
    clear_attempt,
    forget,
    leave_queue,
    preempt,
    preempted,
    stop_all,
    withdraw,
)
from services.placement.core.lifecycle.plan import carry_out
from services.placement.core.lifecycle.suspending.pausing import before_it_began, frees_gpus, given_up, has_lost_nothing
from services.placement.core.lifecycle.suspending.yielding import stays_in_the_way
from services.placement.core.lifecycle.table import Look, machine, reacts
from services.placement.core.lifecycle.trials import tried


@machine.evolves(JobStarted)
def task_started(cell: Cell, event: JobStarted, now_s: float) -> None:
    job = active(cell, event.job_id, event.attempt)
    if job is not None and event.node_id in job.live_nodes():
        job.tasks.started[event.node_id] = None
        if all(task.node_id in job.tasks.started for task in job.gang):
            cell.begun(job.job_id)
            for listener in heard_by(job):
                listener.begun(cell, job, now_s)
    destination_started(cell, event)


@machine.evolves(JobMovable)
def task_movable(cell: Cell, event: JobMovable, now_s: float) -> None:
    job = active(cell, event.job_id, event.attempt)
    if job is not None:
        job.tasks.movable[event.node_id] = None
        if event.resizable:
            job.tasks.resizable[event.node_id] = None


@machine.evolves(JobSuspended)
def task_suspended(cell: Cell, event: JobSuspended, now_s: float) -> HandOver:
    job = active(cell, event.job_id, event.attempt)
    if job is not None:
        job.tasks.still[event.node_id] = None
        if event.parked:
            job.tasks.on_gpu.pop(event.node_id, None)
        else:
            job.tasks.on_gpu[event.node_id] = None
        if event.untrained:
            job.tasks.untrained[event.node_id] = None
        if job.suspended:
            for listener in heard_by(job):
                listener.stands_still(cell, job, now_s)
    return advance(cell, event.job_id)


@reacts(JobSuspended)
def hand_over_or_give_up(cell: Cell, event: JobSuspended, turn: Turn[Cell]) -> Look | None:
    """A job that moves hands its state over; a paused one gives its GPUs up; a guest has left them, or is ended."""
    hand_over(cell, event, turn)
    carry_out(cell, stays_in_the_way(cell, event), turn)
    job = active(cell, event.job_id, event.attempt)
    if job is not None and has_lost_nothing(job):
        preempt(cell, preempted(job, before_it_began(job)), turn)
        return Look()
    if job is None or not frees_gpus(job):
        return None
    carry_out(cell, given_up(cell, job, turn.now_s), turn)
    return Look()


@machine.evolves(JobResumed)
def task_resumed(cell: Cell, event: JobResumed, now_s: float) -> None:
    job = active(cell, event.job_id, event.attempt)
    if job is not None:
        job.tasks.still.pop(event.node_id, None)
        job.tasks.on_gpu.pop(event.node_id, None)
        job.tasks.untrained.pop(event.node_id, None)
        for listener in heard_by(job):
            listener.begun(cell, job, now_s)


@machine.decides(JobStarted)
def stop_a_stranger(cell: Cell, event: JobStarted, turn: Turn[Cell]) -> None:
    """A task of an attempt that is over (its node was thought lost) must not go on."""
    if not expects(cell, event.node_id, event.job_id, event.attempt):
        turn.emit(stop_stale(cell, event.node_id, event.job_id, event.attempt))


@machine.evolves(JobExited)
def task_exited(cell: Cell, event: JobExited, now_s: float) -> bool:
    """Whether the task is the first to end badly: its peers are to be stopped."""
    destination_ended(cell, event)
    strays.end(cell, event)
    job = active(cell, event.job_id, event.attempt)
    if job is None or event.node_id not in job.live_nodes():
        return False
    task_exit = TaskExit(
        exit_code=event.exit_code,
        signal=event.signal,
        outcome=event.outcome,
        stderr_tail=event.stderr_tail,
        memory_signs=event.memory_signs,
    )
    job.tasks.exits[event.node_id] = task_exit
    if task_exit.good or job.stopping or not job.live_nodes():
        return False
    job.stopping = True
    cell.affects(job)
    return True


@reacts(JobExited)
def end_or_stop_peers(cell: Cell, event: JobExited, turn: Turn[Cell]) -> Look | None:
    """The attempt ends with its last task; one that ends badly takes its peers along."""
    if destination_failed(cell, event, turn):
        return Look()
    job = active(cell, event.job_id, event.attempt)
    if job is None or event.node_id not in job.tasks.exits:
        return None
    # Where the first task of a gang has done its work, the others go on to their ends: they may have been halted.
    others_go_on = bool(job.live_nodes()) and not job.stopping
    reason = Reason(code="Ended", message="it has ended where it was")
    freed = abandon(cell, job, reason, turn, goes_on=others_go_on)
    if not job.live_nodes():
        end_attempt(cell, job, turn)
        return Look()
    if turn.changed:
        reason = Reason(code="PeerFailed", message=f"the task on {event.node_id} ended badly")
        stop_all(cell, job, cell.settings.stop_grace_s, reason, turn)
    return freed


@machine.evolves(JobPreempted)
def job_preempted(cell: Cell, event: JobPreempted, now_s: float) -> None:
    job = cell.jobs[event.job_id]
    job.leaving, job.stopping = event.reason, True
    cell.affects(job)


@machine.evolves(JobSucceeded)
def job_succeeded(cell: Cell, event: JobSucceeded, now_s: float) -> None:
    forget(cell, cell.jobs[event.job_id], now_s)


@machine.evolves(AttemptFailed)
def attempt_failed(cell: Cell, event: AttemptFailed, now_s: float) -> None:
    job = cell.jobs[event.job_id]
    withdraw(cell, job)
    clear_attempt(cell, job, now_s)
    job.phase = Phase.FAILED


def stop_stale(cell: Cell, node_id: str, job_id: str, attempt: int) -> StopTask:
    """The order against a task of an attempt that is over."""
    reason = Reason(code="AttemptIsOver", message=f"attempt {attempt} of {job_id} does not hold GPUs here any more")
    return StopTask(node_id=node_id, job_id=job_id, attempt=attempt, grace_s=cell.settings.stop_grace_s, reason=reason)


def end_attempt(cell: Cell, job: Job, turn: Turn[Cell]) -> None:
    """Every task has ended: say what that means for the job.

    A job that did all its work has succeeded, even when it was about to be cancelled or moved; its trial is not all.
    """
    if job.suspended:
        leave_queue(cell, job, "Ended", turn)
    ended_well = all(task_exit.good for task_exit in job.tasks.exits.values())
    if ended_well and job.trial is not None and job.cancellation is None:
        turn.emit(tried(job))
    elif ended_well and job.trial is None:
        turn.emit(JobSucceeded(job_id=job.job_id, attempt=job.attempt))
    elif job.cancellation is not None:
        turn.emit(cancelled(job))
    elif job.leaving is not None:
        reason = on_hold() if job.held else job.leaving
        turn.emit(
            JobQueued(
                job_id=job.job_id,
                attempt=job.next_attempt,
                reason=reason,
                returns_to_quota=job.returns_to_quota,
            )
        )
    else:
        turn.emit(_failure(job))


def _failure(job: Job) -> AttemptFailed:
    """Blame the first task that ended badly by itself; none where one was interrupted, which has taken others along."""
    bad = [(node_id, e) for node_id, e in job.tasks.exits.items() if not e.good]
    interrupted = [(n, e) for n, e in bad if e.outcome == "interrupted"]
    node_id, task_exit = next(((n, e) for n, e in [*interrupted, *bad] if e.outcome != "stopped"), bad[0])
    if job.tasks.overdue and task_exit.outcome == "stopped":
        return _not_begun(job, bad)
    if job.tasks.alarm is not None and task_exit.outcome == "stopped":
        return _stopped(job, job.tasks.alarm, node_id, task_exit)
    how = f"signal {task_exit.signal}" if task_exit.signal is not None else f"exit code {task_exit.exit_code}"
    message = f"the task on {node_id} ended with {how} ({task_exit.outcome})"
    if task_exit.outcome == "interrupted":
        message = f"the task on {node_id} was interrupted: {task_exit.stderr_tail}"
    reason = Reason(code="TaskEndedBadly", message=message)
    return _attempt_failed(job, node_id, task_exit, task_exit.outcome, task_exit.stderr_tail, reason)


def _attempt_failed(
    job: Job, node_id: str, task_exit: TaskExit, outcome: str, stderr_tail: str, reason: Reason
) -> AttemptFailed:
    """The decision on the job's attempt, by how one of its tasks has ended."""
    overlap = strays.beside(job)
    return AttemptFailed(
        job_id=job.job_id,
        attempt=job.attempt,
        node_id=node_id,
        exit_code=task_exit.exit_code,
        signal=task_exit.signal,
        outcome=outcome,
        stderr_tail=stderr_tail,
        last_attempt=job.last_attempt if job.last_attempt > job.attempt else 0,
        trial=job.trial is not None,
        memory_signs=task_exit.memory_signs,
        overlap=overlap,
        reason=strays.told_with(reason, overlap),
    )


def _stopped(job: Job, alarm: Alarm, node_id: str, task_exit: TaskExit) -> AttemptFailed:
    """Its tenant has it stopped."""
    return _attempt_failed(job, node_id, task_exit, alarm.name, alarm.reason.message, alarm.reason)


def _not_begun(job: Job, bad: list[tuple[str, TaskExit]]) -> AttemptFailed:
    """Blame the first task that had not started in time; its agent says what it has seen of it last."""
    node_id, task_exit = next(((n, e) for n, e in bad if n not in job.tasks.started), bad[0])
    seen = f"; last seen: {task_exit.stderr_tail}" if task_exit.stderr_tail else ""
    reason = Reason(code="StartTimedOut", message=f"the task on {node_id} did not start in time{seen}")
    not_ended = TaskExit(exit_code=None, signal=None, outcome="start_timed_out")
    return _attempt_failed(job, node_id, not_ended, not_ended.outcome, task_exit.stderr_tail, reason)
