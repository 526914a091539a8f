"""The fold of a job's life: a table of handlers per event type, and of the types that change no life.

A handler changes facts; the state follows from them (`life.state_of`). What belongs to an earlier attempt, or comes
when the job has ended, changes nothing: the guard beside the handler says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from libs.contracts.admission import JobHeldBack, JobRejected, TrialOrdered, TrialPassed, TrialSkipped
from libs.contracts.agent import JobExited, JobResumed, JobStarted, JobSuspended, NodeJoined, NodeLeft
from libs.contracts.base import Event
from libs.contracts.failure_analysis import JobAbandoned, RetryScheduled
from libs.contracts.gateway import JobCancelRequested, JobPauseRequested, JobResumeRequested
from libs.contracts.introspection import NodeLost
from libs.contracts.migration import MigrationCompleted, MigrationFailed, MigrationStarted
from libs.contracts.placement import (
    AttemptFailed,
    JobCancelled,
    JobMoved,
    JobPlaced,
    JobPreempted,
    JobQueued,
    JobSucceeded,
    Role,
    TimeSliceStarted,
)
from libs.contracts.quota import JobUpgraded, OpportunityGranted, QuotaDeferred, QuotaGranted
from libs.contracts.read_models import JobState, TaskStatus
from libs.contracts.reasons import PendingReason
from libs.lifecycle.books import Attempt, Suspension
from libs.lifecycle.guards import (
    always,
    current,
    has_task_there,
    is_forgotten,
    is_named,
    its_move,
    moves_on,
    not_before,
    not_cancelled,
)
from libs.lifecycle.life import LIVE, Life, has_live_task, state_of
from libs.lifecycle.moment import At

Guard = Callable[[Life, Any], bool]
Change = Callable[[Life, Any, At], None]


class Handler(NamedTuple):
    """What an event of one type does to a life, and when."""

    concerns: Guard
    """Whether it concerns a life that has not ended, as it stands."""
    change: Change


HANDLERS: dict[type[Event], Handler] = {}
"""What changes the facts of a life."""
MEASURED: dict[type[Event], Change] = {}
"""What counts in the books whatever attempt it is of, and also behind the end."""


def fold(life: Life, event: Event, at: At) -> bool:
    """Fold one event into the life of a job.

    Args:
        life: of the job that the event is about, or names; changed in place.
        event: the next one on control.
        at: its moment.

    Returns:
        Whether it concerns the life as it stands; if not, no fact and no state has changed.
    """
    if measured := MEASURED.get(type(event)):
        measured(life, event, at)
    handler = HANDLERS.get(type(event))
    if handler is None or life.finished_s is not None or not handler.concerns(life, event):
        return False
    # The outcome of an attempt before the change: that may give the life another attempt.
    if type(event) in _OUTCOMES and (outcome := outcome_of(life.attempt, event)):
        life.books.decide(life.attempt, outcome, at.time_s)
    before = life.state
    handler.change(life, event, at)
    if life.finished_s is None:
        life.holds_gpus = life.holds_gpus and has_live_task(life)
        life.state = state_of(life)
    if life.state is not before:
        life.books.state_since_s = at.time_s
    return True


_OUTCOMES: dict[type[Event], str] = {
    JobQueued: "preempted",
    JobPreempted: "preempted",
    JobMoved: "moved",
    AttemptFailed: "failed",
    JobAbandoned: "failed",
    JobSucceeded: "succeeded",
    JobCancelled: "cancelled",
}


def outcome_of(attempt: int, event: Event) -> str:
    """How the event says that the attempt has ended, if no earlier one has said it; empty: it does not say.

    Args:
        attempt: the latest of the job before the event.
        event: which concerns the job.
    """
    outcome = _OUTCOMES.get(type(event), "")
    if outcome and isinstance(event, JobQueued):
        if event.attempt <= attempt:
            return ""
        return "tried" if event.tried else outcome
    return outcome


def _on(*types: type[Event], when: Guard = always) -> Callable[[Change], Change]:
    def register(change: Change) -> Change:
        HANDLERS.update(dict.fromkeys(types, Handler(when, change)))
        return change

    return register


def _measured(*types: type[Event]) -> Callable[[Change], Change]:
    def register(change: Change) -> Change:
        MEASURED.update(dict.fromkeys(types, change))
        return change

    return register


def _waits(life: Life, attempt: int, event: Event, at: At) -> None:
    """The job holds nothing and waits to run as `attempt`."""
    life.books.release(event, at)
    life.attempt, life.gang, life.tasks = attempt, [], {}
    life.holds_gpus = life.is_preempted = False


@_on(QuotaGranted, OpportunityGranted, RetryScheduled, when=not_before)
def _may_compete(life: Life, event: QuotaGranted | OpportunityGranted | RetryScheduled, at: At) -> None:
    life.books.retries += isinstance(event, RetryScheduled)
    # A suspended job that was a victim of a reclaim has quota again: its attempt lasts, and its tasks with it.
    if event.attempt != life.attempt or not has_live_task(life):
        _waits(life, event.attempt, event, at)
    life.books.waits(PendingReason.NOT_YET_EVALUATED, at.time_s)


@_on(QuotaDeferred, JobQueued, when=not_before)
def _queued(life: Life, event: QuotaDeferred | JobQueued, at: At) -> None:
    # A suspended job is told why it does not go on: its attempt lasts, and its tasks with it.
    if event.attempt != life.attempt or not has_live_task(life):
        _waits(life, event.attempt, event, at)
    if isinstance(event, JobQueued):
        life.books.stands(event, at.time_s)
    else:
        life.books.waits(event.reason.code, at.time_s)


@_on(JobHeldBack)
def _held_back(life: Life, event: JobHeldBack, at: At) -> None:
    life.books.waits(event.reason.code, at.time_s)


@_on(JobPlaced, when=not_before)
def _placed(life: Life, event: JobPlaced, at: At) -> None:
    life.attempt, life.gang = event.attempt, event.gang
    life.tasks = {task.node_id: TaskStatus.PLACED for task in event.gang}
    life.holds_gpus, life.is_preempted, life.started_s = True, False, None
    life.books.started = {}
    life.books.counts(at.time_s, as_owner=event.role != Role.GUEST)
    life.books.starts += 1
    life.books.starts_out_of_order += bool(event.passed)
    life.books.starts_delaying += bool(event.delays)
    _begins(life, event, at)


@_on(JobMoved, when=moves_on)
def _moved(life: Life, event: JobMoved, at: At) -> None:
    """The earlier attempt is over; its tasks stood still, as the new ones do until they go on."""
    life.books.release(event, at)
    life.attempt, life.gang, life.holds_gpus = event.attempt, event.gang, True
    life.tasks = {task.node_id: TaskStatus.SUSPENDED for task in event.gang}
    _begins(life, event, at, started_s=at.time_s)


def _begins(life: Life, event: JobPlaced | JobMoved, at: At, started_s: float | None = None) -> None:
    """The attempt begins with its gang. While the gang was kept for a move the job used the one that it had."""
    life.books.hold(life.job_id, life.tenant, event.gang, at)
    life.books.begin(
        Attempt(
            job_id=life.job_id,
            number=event.attempt,
            gang=event.gang,
            reason=event.reason,
            placed_s=at.time_s,
            started_s=started_s,
            began=at.number,
        )
    )


@_on(TimeSliceStarted, when=is_named)
def _sliced(life: Life, event: TimeSliceStarted, at: At) -> None:
    """Jobs take turns: a suspended job has no place until it goes on; a resumed one may have others of its servers."""
    resumed = next((resumed for resumed in event.resumed if resumed.job_id == life.job_id), None)
    if resumed is None:
        life.gang, life.holds_gpus = [], False
        life.books.stand_aside(at)
    else:
        life.gang, life.holds_gpus = resumed.gang, True
        life.books.hold(life.job_id, life.tenant, resumed.gang, at)


def _task_is(life: Life, node_id: str, status: TaskStatus) -> None:
    """One node's task has come this far. An exited task stays exited."""
    if life.tasks.get(node_id) in LIVE:
        life.tasks = {**life.tasks, node_id: status}


@_on(JobStarted, when=current)
def _started(life: Life, event: JobStarted, at: At) -> None:
    _task_is(life, event.node_id, TaskStatus.RUNNING)
    books = life.books
    if books.is_placed:
        books.started[event.node_id] = None
        if len(books.started) == len(life.tasks) and books.whole_gang_s is None:
            books.whole_gang_s = at.time_s
    if life.started_s is None and life.tasks and TaskStatus.PLACED not in life.tasks.values():
        life.started_s = at.time_s
        if books.attempt is not None and books.attempt.number == life.attempt:
            books.attempt.started_s = at.time_s


@_on(JobSuspended, when=current)
def _suspended(life: Life, event: JobSuspended, at: At) -> None:
    _task_is(life, event.node_id, TaskStatus.SUSPENDED)


@_on(JobResumed, when=current)
def _resumed(life: Life, event: JobResumed, at: At) -> None:
    _task_is(life, event.node_id, TaskStatus.RUNNING)


@_on(JobExited, when=current)
def _exited(life: Life, event: JobExited, at: At) -> None:
    _task_is(life, event.node_id, TaskStatus.EXITED)


@_on(NodeJoined, when=is_forgotten)
def _forgotten(life: Life, event: NodeJoined, at: At) -> None:
    _task_is(life, event.node_id, TaskStatus.EXITED)


@_on(NodeLost, NodeLeft, when=has_task_there)
def _gone_with_its_node(life: Life, event: NodeLost | NodeLeft, at: At) -> None:
    _task_is(life, event.node_id, TaskStatus.EXITED)


@_on(JobPreempted, when=current)
def _preempted(life: Life, event: JobPreempted, at: At) -> None:
    life.is_preempted = True
    life.preemptions += 1


@_on(MigrationStarted, when=current)
def _moves(life: Life, event: MigrationStarted, at: At) -> None:
    life.migration_id = event.migration_id


@_on(MigrationCompleted, MigrationFailed, when=its_move)
def _has_moved(life: Life, event: MigrationCompleted | MigrationFailed, at: At) -> None:
    life.migration_id = None


@_on(JobCancelRequested)
def _cancel_requested(life: Life, event: JobCancelRequested, at: At) -> None:
    life.is_cancelled = True


@_on(JobPauseRequested, when=not_cancelled)
def _paused(life: Life, event: JobPauseRequested, at: At) -> None:
    life.is_paused = True
    life.books.holds(at.time_s, held=True)


@_on(JobResumeRequested, when=not_cancelled)
def _unpaused(life: Life, event: JobResumeRequested, at: At) -> None:
    life.is_paused = False
    life.books.holds(at.time_s, held=False)


@_on(JobUpgraded)
def _upgraded(life: Life, event: JobUpgraded, at: At) -> None:
    life.books.counts(at.time_s, as_owner=True)


@_on(AttemptFailed, when=current)
def _failed(life: Life, event: AttemptFailed, at: At) -> None:
    life.books.release(event, at)
    life.books.waits(PendingReason.NOT_YET_EVALUATED, at.time_s)
    life.tasks = dict.fromkeys(life.tasks, TaskStatus.EXITED)
    life.is_preempted = False


_ENDS: dict[type[Event], JobState] = {
    JobSucceeded: JobState.SUCCEEDED,
    JobCancelled: JobState.CANCELLED,
    JobAbandoned: JobState.FAILED,
    JobRejected: JobState.REJECTED,
}


@_on(*_ENDS)
def _ended(life: Life, event: JobSucceeded | JobCancelled | JobAbandoned | JobRejected, at: At) -> None:
    life.books.release(event, at)
    life.books.waits("", at.time_s)
    life.tasks, life.holds_gpus = {}, False
    life.is_paused = life.is_preempted = False
    life.migration_id, life.finished_s = None, at.time_s
    life.state = _ENDS[type(event)]


@_measured(JobStarted)
def _runs(life: Life, event: JobStarted, at: At) -> None:
    if life.books.first_task_s is None:
        life.books.first_task_s = at.time_s


@_measured(JobSuspended)
def _stands_still(life: Life, event: JobSuspended, at: At) -> None:
    life.books.suspension = Suspension(begin_s=at.time_s, delay_s=event.delay_s, parked_bytes=event.parked_bytes)


@_measured(JobResumed, JobExited)
def _stands_still_no_more(life: Life, event: JobResumed | JobExited, at: At) -> None:
    suspension = life.books.suspension
    if suspension is not None and suspension.end_s is None:
        suspension.end_s = at.time_s


@_measured(MigrationCompleted)
def _arrived_elsewhere(life: Life, event: MigrationCompleted, at: At) -> None:
    life.books.migrations += 1


@_on(TrialOrdered)
def _tries(life: Life, event: TrialOrdered, at: At) -> None:
    life.books.tries(at.time_s, in_trial=True)


@_on(TrialPassed, TrialSkipped)
def _tries_no_more(life: Life, event: TrialPassed | TrialSkipped, at: At) -> None:
    life.books.tries(at.time_s, in_trial=False)
