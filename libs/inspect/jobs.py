"""Each job as of any place on the log: its life, and the reason that stands for it. Over control alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from libs.contracts.admission import JobAdmitted, JobHeldBack, JobRejected
from libs.contracts.agent import JobRanksApart, JobResumed, JobSettingUp, JobSuspended
from libs.contracts.base import Event, Topic
from libs.contracts.envelope import Record
from libs.contracts.failure_analysis import FailureClassified, JobAbandoned, RetryScheduled
from libs.contracts.gateway import JobArrived, JobCancelRequested, JobPauseRequested, JobResumeRequested
from libs.contracts.introspection import GpuIdle, JobRecovered, JobStalled, JobStuck, LossDiverged
from libs.contracts.migration import MigrationStarted
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
from libs.contracts.quota import OpportunityGranted, QuotaDeferred, QuotaGranted
from libs.contracts.reasons import PendingReason, Reason
from libs.inspect.job_view import JobView, Said
from libs.lifecycle import Lives, why_gpus_are_kept
from libs.lifecycle.awaited import STUCK

_ACCEPTED = "accepted; admission looks at it next"


class Jobs:
    """Folds control records into jobs."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobView] = {}
        """In order of arrival."""
        self._lives = Lives()

    def take(self, record: Record) -> None:
        """The next record; those of other topics and those that are about no job change nothing."""
        event = record.envelope.event
        if record.topic != Topic.CONTROL:
            return
        spoken_of = [job for job in self._spoken_of(event) if not job.ended]
        self._lives.take(event, record.envelope.time_s)
        if isinstance(event, JobArrived) and event.job_id not in self.jobs:
            said = _said(record, _not_yet_evaluated(_ACCEPTED))
            self.jobs[event.job_id] = JobView(life=self._lives.jobs[event.job_id], said=said)
        for job in spoken_of:
            if isinstance(event, FailureClassified):
                job.failure = event
            elif _stands(job, event) and (reason := _REASONS[type(event)](event)) is not None:
                job.said = _said(record, reason)

    def _spoken_of(self, event: Event) -> list[JobView]:
        """Jobs to which the event may give a reason or a verdict."""
        if isinstance(event, TimeSliceStarted):
            named = event.suspended  # a job that is resumed keeps its reason until it goes on (JobResumed)
        elif type(event) in _REASONS or isinstance(event, FailureClassified):
            named = [event.subject]
        else:
            return []
        return [self.jobs[job_id] for job_id in named if job_id in self.jobs]


def jobs_of(records: Iterable[Record]) -> dict[str, JobView]:
    """{job id: job} after these records, in order of arrival."""
    fold = Jobs()
    for record in records:
        fold.take(record)
    return fold.jobs


def _said(record: Record, reason: Reason) -> Said:
    return Said(reason=reason, by=record.envelope.source, offset=record.offset, time_s=record.envelope.time_s)


def _stands(job: JobView, event: Event) -> bool:
    """Whether the reason of an event that the job's life has taken is the job's own from now on.

    It is not when it is of an earlier attempt, or when the job's end has been asked for: that outweighs everything but
    the end of an attempt and of the job. What an agent says of a suspension is, for a job that its user has paused.
    """
    if isinstance(event, _LAST_WORDS):
        return True
    if isinstance(event, JobSuspended) and not job.life.is_paused:
        return False
    return not job.cancelling and getattr(event, "attempt", job.attempt) == job.attempt


def _not_yet_evaluated(message: str) -> Reason:
    return Reason(code=PendingReason.NOT_YET_EVALUATED, message=message)


def _its_own(event: Any) -> Reason:
    reason: Reason = event.reason
    return reason


def _admitted(event: JobAdmitted) -> Reason:
    return _not_yet_evaluated("admitted; quota looks at it next")


def _granted(event: QuotaGranted) -> Reason:
    return _not_yet_evaluated("quota is granted; placement looks at it next")


def _may_be_a_guest(event: OpportunityGranted) -> Reason:
    return _not_yet_evaluated("it may run beside guaranteed jobs; placement looks at it next")


def _recovered(event: JobRecovered) -> Reason | None:
    """What has brought on a job that stood has said why that is where it is."""
    return None if event.alarm == STUCK else event.reason


def _resumed(event: JobResumed) -> Reason:
    return Reason(code="Resumed", message=f"goes on at {event.node_id}")


def _cancelling(event: JobCancelRequested) -> Reason:
    note = f": {event.note}" if event.note else ""
    return Reason(code="CancelRequested", message=f"{event.requested_by or 'a user'} wants it cancelled{note}")


def _paused(event: JobPauseRequested) -> Reason:
    return Reason(code=PendingReason.ON_HOLD, message=f"paused by {event.requested_by or 'a user'}")


def _released(event: JobResumeRequested) -> Reason:
    return _not_yet_evaluated(f"released by {event.requested_by or 'a user'}")


def _succeeded(event: JobSucceeded) -> Reason:
    return Reason(code="Succeeded", message="every task exited with code 0")


_LAST_WORDS = (JobCancelRequested, AttemptFailed, JobSucceeded, JobCancelled, JobAbandoned, JobRejected)
_REASONS: dict[type[Event], Callable[[Any], Reason | None]] = {
    JobAdmitted: _admitted,
    JobHeldBack: _its_own,
    JobRejected: _its_own,
    QuotaGranted: _granted,
    OpportunityGranted: _may_be_a_guest,
    QuotaDeferred: _its_own,
    JobQueued: _its_own,
    JobPlaced: _its_own,
    JobMoved: _its_own,
    TimeSliceStarted: _its_own,
    JobRanksApart: _its_own,
    JobSettingUp: _its_own,
    JobSuspended: why_gpus_are_kept,
    JobStalled: _its_own,
    JobStuck: _its_own,
    GpuIdle: _its_own,
    JobRecovered: _recovered,
    LossDiverged: _its_own,
    JobResumed: _resumed,
    JobPreempted: _its_own,
    MigrationStarted: _its_own,
    AttemptFailed: _its_own,
    RetryScheduled: _its_own,
    JobCancelRequested: _cancelling,
    JobPauseRequested: _paused,
    JobResumeRequested: _released,
    JobSucceeded: _succeeded,
    JobCancelled: _its_own,
    JobAbandoned: _its_own,
}
"""The reason that an event of each type gives to its job; where it carries none of its own, in words of ours.

None: the one before stands.
"""
