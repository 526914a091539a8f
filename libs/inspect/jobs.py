"""Each job as of any place on the log: state, reason, and what it holds. A fold over control alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from libs.contracts.admission import JobAdmitted, JobRejected
from libs.contracts.agent import JobExited, JobResumed, JobStarted, JobSuspended, NodeJoined, NodeLeft
from libs.contracts.base import Event, Topic
from libs.contracts.envelope import Record
from libs.contracts.failure_analysis import FailureClassified, JobAbandoned, RetryScheduled
from libs.contracts.gateway import JobArrived, JobCancelRequested, JobPauseRequested, JobResumeRequested
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
    TimeSliceStarted,
)
from libs.contracts.quota import QuotaDeferred, QuotaGranted
from libs.contracts.read_models import JobState
from libs.contracts.reasons import PendingReason, Reason
from libs.inspect.job_view import JobView, Said


class Jobs:
    """Folds control records into jobs."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobView] = {}
        """In order of arrival."""
        self._live: dict[str, JobView] = {}
        """Those that have not ended."""
        self._incarnations: dict[str, int] = {}
        """{node id: of its agent}."""

    def take(self, record: Record) -> None:
        """The next record; those of other topics and those that are about no job change nothing."""
        event = record.envelope.event
        if record.topic != Topic.CONTROL:
            return
        said = Said(
            reason=getattr(event, "reason", None) or Reason(code=type(event).__name__, message=""),
            by=record.envelope.source,
            offset=record.offset,
            time_s=record.envelope.time_s,
        )
        if isinstance(event, JobArrived):
            self._arrive(event, said)
        elif isinstance(event, NodeJoined | NodeLost | NodeLeft):
            self._node(event, said)
        elif isinstance(event, TimeSliceStarted):
            self._slice(event, said)
        elif (handler := _HANDLERS.get(type(event))) and (job := self._live.get(event.subject)):
            handler(job, event, said)
            self._enter(job, said)

    def _arrive(self, event: JobArrived, said: Said) -> None:
        reason = Reason(code=PendingReason.NOT_YET_EVALUATED, message="accepted; admission looks at it next")
        said = msgspec.structs.replace(said, reason=reason)
        if event.job_id not in self.jobs:
            view = JobView(job_id=event.job_id, spec=event.spec, said=said, state_since_s=said.time_s)
            self.jobs[event.job_id] = self._live[event.job_id] = view

    def _node(self, event: NodeJoined | NodeLost | NodeLeft, said: Said) -> None:
        """Tasks that went with their node, or that its restarted agent does not know any more, have ended.

        A task that was placed and has not started may still be on its way to a restarted agent.
        """
        if isinstance(event, NodeJoined):
            self._incarnations[event.node_id] = event.incarnation
            there = [(task.job_id, task.attempt) for task in event.tasks]
        elif event.incarnation < self._incarnations.get(event.node_id, 0):
            return
        for job in self._live.values():
            status = job.tasks.get(event.node_id, "exited")
            if isinstance(event, NodeJoined) and (status == "placed" or (job.job_id, job.attempt) in there):
                continue
            if status != "exited":
                job.tasks = job.tasks | {event.node_id: "exited"}
                self._enter(job, said)

    def _slice(self, event: TimeSliceStarted, said: Said) -> None:
        """Jobs take turns: a suspended job has no place until it goes on."""
        for job_id in event.suspended:
            if job := self._live.get(job_id):
                job.gang = []
                if not job.cancelling:
                    job.said = said
        for seat in event.resumed:
            if job := self._live.get(seat.job_id):
                job.gang = seat.gang

    def _enter(self, job: JobView, said: Said) -> None:
        """The job's facts have changed: so may its state."""
        if job.ended:
            del self._live[job.job_id]
        elif (state := job.derive()) is not job.state:
            job.state, job.state_since_s = state, said.time_s


def jobs_of(records: Iterable[Record]) -> dict[str, JobView]:
    """{job id: job} after these records, in order of arrival."""
    fold = Jobs()
    for record in records:
        fold.take(record)
    return fold.jobs


Handler = Callable[[JobView, Any, Said], None]
_HANDLERS: dict[type[Event], Handler] = {}


def _on(*types: type[Event]) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        _HANDLERS.update(dict.fromkeys(types, handler))
        return handler

    return register


def _because(said: Said, code: str, message: str) -> Said:
    return msgspec.structs.replace(said, reason=Reason(code=code, message=message))


def _waits(job: JobView, attempt: int, said: Said) -> None:
    """It holds nothing and waits for `attempt`."""
    job.attempt, job.gang, job.tasks, job.preempted = attempt, [], {}, False
    if not job.cancelling:
        job.said = said


@_on(JobAdmitted)
def _admitted(job: JobView, event: JobAdmitted, said: Said) -> None:
    if not job.cancelling:
        job.said = _because(said, PendingReason.NOT_YET_EVALUATED, "admitted; quota looks at it next")


@_on(QuotaGranted)
def _granted(job: JobView, event: QuotaGranted, said: Said) -> None:
    if event.attempt >= job.attempt:
        next_step = "quota is granted; placement looks at it next"
        _waits(job, event.attempt, _because(said, PendingReason.NOT_YET_EVALUATED, next_step))


@_on(QuotaDeferred, JobQueued, RetryScheduled)
def _queued(job: JobView, event: QuotaDeferred | JobQueued | RetryScheduled, said: Said) -> None:
    if event.attempt >= job.attempt:
        _waits(job, event.attempt, said)


@_on(JobPlaced)
def _placed(job: JobView, event: JobPlaced, said: Said) -> None:
    job.attempt, job.gang, job.preempted = event.attempt, event.gang, False
    job.tasks = {task.node_id: "placed" for task in event.gang}
    if not job.cancelling:
        job.said = said


@_on(JobMoved)
def _has_moved(job: JobView, event: JobMoved, said: Said) -> None:
    """Its next attempt stands still elsewhere, with its state, and goes on now."""
    job.attempt, job.gang = event.attempt, event.gang
    job.tasks = {task.node_id: "suspended" for task in event.gang}
    if not job.cancelling:
        job.said = said


@_on(JobStarted, JobSuspended, JobResumed, JobExited)
def _task(job: JobView, event: JobStarted | JobSuspended | JobResumed | JobExited, said: Said) -> None:
    status = {JobStarted: "running", JobSuspended: "suspended", JobResumed: "running", JobExited: "exited"}
    if event.attempt == job.attempt and job.tasks.get(event.node_id, "exited") != "exited":
        job.tasks = job.tasks | {event.node_id: status[type(event)]}
    if isinstance(event, JobResumed) and event.attempt == job.attempt and not job.cancelling:
        job.said = _because(said, "Resumed", f"goes on at {event.node_id}")


@_on(JobPreempted)
def _preempted(job: JobView, event: JobPreempted, said: Said) -> None:
    job.preempted = True
    if not job.cancelling:
        job.said = said


@_on(MigrationStarted)
def _moves(job: JobView, event: MigrationStarted, said: Said) -> None:
    if event.attempt == job.attempt:
        job.moving = event.migration_id
        if not job.cancelling:
            job.said = said


@_on(MigrationCompleted, MigrationFailed)
def _moved(job: JobView, event: MigrationCompleted | MigrationFailed, said: Said) -> None:
    if job.moving == event.migration_id:
        job.moving = ""


@_on(JobCancelRequested)
def _cancelling(job: JobView, event: JobCancelRequested, said: Said) -> None:
    job.cancelling = True
    note = f": {event.note}" if event.note else ""
    job.said = _because(said, "CancelRequested", f"{event.requested_by or 'somebody'} wants it cancelled{note}")


@_on(JobPauseRequested)
def _paused(job: JobView, event: JobPauseRequested, said: Said) -> None:
    if not job.cancelling:
        job.said = _because(said, PendingReason.ON_HOLD, f"paused by {event.requested_by or 'somebody'}")


@_on(JobResumeRequested)
def _released(job: JobView, event: JobResumeRequested, said: Said) -> None:
    if not job.cancelling:
        message = f"released by {event.requested_by or 'somebody'}"
        job.said = _because(said, PendingReason.NOT_YET_EVALUATED, message)


@_on(AttemptFailed)
def _failed(job: JobView, event: AttemptFailed, said: Said) -> None:
    job.tasks = dict.fromkeys(job.tasks, "exited")
    job.gang, job.preempted, job.said = [], False, said


@_on(FailureClassified)
def _classified(job: JobView, event: FailureClassified, said: Said) -> None:
    job.failure = event


@_on(JobSucceeded, JobCancelled, JobAbandoned, JobRejected)
def _ended(job: JobView, event: JobSucceeded | JobCancelled | JobAbandoned | JobRejected, said: Said) -> None:
    states: dict[type[Event], JobState] = {
        JobSucceeded: JobState.SUCCEEDED,
        JobCancelled: JobState.CANCELLED,
        JobAbandoned: JobState.FAILED,
        JobRejected: JobState.REJECTED,
    }
    job.gang, job.tasks, job.moving, job.preempted = [], {}, "", False
    if isinstance(event, JobSucceeded):
        said = _because(said, "Succeeded", "every task exited with code 0")
    job.state, job.state_since_s, job.said = states[type(event)], said.time_s, said
