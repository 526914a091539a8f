"""A job's states: what may be said of it in which (`TABLE`), and what moves it from one to another (`CHANGES`).

What is in no row of `TABLE` cannot be, neither heard nor decided. Agents and services speak of what they know, and that
may be over by the time it is read: such events are rows, too, each with its cause, so that what is in none is a fault
of another service, of an agent, of a mechanism, or of the log.

The picture in the README is made from `CHANGES`; tests compare it, and look in random histories for other changes.
"""

from __future__ import annotations

from dataclasses import dataclass

from libs.contracts.admission import JobAdmitted, JobRejected, TrialOrdered, TrialPassed, TrialSkipped
from libs.contracts.agent import JobExited, JobMovable, JobReady, JobRestored, JobResumed, JobStarted, JobSuspended
from libs.contracts.base import Event
from libs.contracts.failure_analysis import JobAbandoned, RetryScheduled
from libs.contracts.gateway import (
    JobArrived,
    JobCancelRequested,
    JobCodeChanged,
    JobMaxGpusChanged,
    JobPauseRequested,
    JobPriorityChanged,
    JobResumeRequested,
    LimitsRequested,
)
from libs.contracts.introspection import (
    GpuIdle,
    InterferenceDetected,
    JobProfiled,
    JobStalled,
    LossDiverged,
    PackFailed,
    PackSucceeded,
)
from libs.contracts.migration import MigrationStarted
from libs.contracts.placement import (
    AttemptFailed,
    DestinationReserved,
    GangReleased,
    GangReserved,
    GuestExpelled,
    JobCancelled,
    JobMoved,
    JobPacked,
    JobPlaced,
    JobPreempted,
    JobQueued,
    JobSucceeded,
    MoveAbandoned,
    TimeSliceStarted,
    UpgradeOffered,
    UpgradeWithdrawn,
)
from libs.contracts.quota import JobUpgraded, OpportunityGranted, QuotaGranted, UpgradeDeclined
from libs.contracts.runtime import TimerFired
from services.placement.core.cell import Cell
from services.placement.core.lifecycle.standing import Attempt, Standing, attempt_of, standing
from services.placement.core.lifecycle.table import machine

ACTIVE = (Standing.RUNNING, Standing.SUSPENDED, Standing.MOVING, Standing.STOPPING)
NOT_PLACED = (Standing.WAITING, Standing.QUEUED, Standing.FAILED, Standing.TRIED)
KNOWN = (Standing.ARRIVED, *NOT_PLACED, *ACTIVE)
EVERYWHERE = (Standing.UNKNOWN, *KNOWN)
ATTEMPTED = (*NOT_PLACED, *ACTIVE)
FACTS = (JobStarted, JobMovable, JobSuspended, JobResumed, JobReady, JobRestored, JobExited)
ALARMS = (JobStalled, GpuIdle, LossDiverged)
MEASURED = (JobProfiled, InterferenceDetected, *ALARMS)
REQUESTS = (
    JobCancelRequested,
    JobPauseRequested,
    JobResumeRequested,
    JobPriorityChanged,
    JobMaxGpusChanged,
    JobCodeChanged,
    LimitsRequested,
)
_ENDED = "it has ended meanwhile"
_ATTEMPT_ENDED = "the attempt has ended meanwhile"


@dataclass(frozen=True, kw_only=True)
class Row:
    """Events that may be, and where."""

    events: tuple[type[Event], ...]
    at: tuple[Standing, ...]
    of: tuple[Attempt, ...] = (Attempt.NONE,)
    because: str
    """What happens, or why the event may come although nothing follows from it."""


TABLE = (
    Row(events=(JobArrived,), at=(Standing.UNKNOWN,), because="it was submitted"),
    Row(events=(JobAdmitted,), at=(Standing.ARRIVED,), because="admission accepts it"),
    Row(events=(JobRejected,), at=(Standing.ARRIVED,), because="admission rejects it"),
    Row(events=(TrialOrdered,), at=(Standing.ARRIVED,), because="admission wants a trial of it first"),
    Row(
        events=(TrialPassed,),
        at=(Standing.TRIED, Standing.FAILED),
        of=(Attempt.THIS, Attempt.OLDER),
        because="admission lets its gang start",
    ),
    Row(events=(TrialPassed, TrialSkipped), at=(Standing.UNKNOWN,), because=_ENDED),
    Row(events=(TrialSkipped,), at=KNOWN, because="it runs without a trial, unless that has begun meanwhile"),
    Row(
        events=(QuotaGranted, OpportunityGranted),
        at=(Standing.WAITING,),
        of=(Attempt.NEWER,),
        because="its tenant's share has room for it, or it may use what others leave",
    ),
    Row(
        events=(QuotaGranted, OpportunityGranted),
        at=(Standing.UNKNOWN,),
        because="it was cancelled while quota decided",
    ),
    Row(
        events=(QuotaGranted,),
        at=(Standing.SUSPENDED,),
        of=(Attempt.THIS,),
        because="it was suspended when what it had was reclaimed, and may go on",
    ),
    Row(
        events=(QuotaGranted,),
        at=(Standing.STOPPING, Standing.WAITING, Standing.FAILED, Standing.TRIED),
        of=(Attempt.THIS,),
        because="the attempt, which was suspended when what it had was reclaimed, is ending or over",
    ),
    Row(
        events=(JobUpgraded, UpgradeDeclined),
        at=ACTIVE,
        of=(Attempt.THIS,),
        because="quota answers an offer to become an owner",
    ),
    Row(events=(JobUpgraded, UpgradeDeclined), at=ATTEMPTED, of=(Attempt.OLDER,), because=_ATTEMPT_ENDED),
    Row(events=(JobUpgraded, UpgradeDeclined), at=NOT_PLACED, of=(Attempt.THIS,), because=_ATTEMPT_ENDED),
    Row(events=(JobUpgraded, UpgradeDeclined), at=(Standing.UNKNOWN,), because=_ENDED),
    Row(
        events=(RetryScheduled,),
        at=(Standing.FAILED,),
        of=(Attempt.NEWER,),
        because="failure analysis gives it another attempt",
    ),
    Row(
        events=(JobAbandoned,),
        at=(Standing.FAILED,),
        of=(Attempt.THIS,),
        because="failure analysis gives it up",
    ),
    Row(events=REQUESTS, at=KNOWN, because="its user may ask at any time"),
    Row(events=REQUESTS, at=(Standing.UNKNOWN,), because=_ENDED),
    Row(events=FACTS, at=ACTIVE, of=(Attempt.THIS,), because="its agents report on its tasks"),
    Row(events=FACTS, at=ACTIVE, of=(Attempt.PREPARED,), because="agents report on the tasks that are to take over"),
    Row(
        events=FACTS,
        at=(Standing.FAILED, Standing.WAITING),
        of=(Attempt.THIS,),
        because="a node that was thought lost reports on an attempt that has failed",
    ),
    Row(
        events=FACTS,
        at=NOT_PLACED,
        of=(Attempt.PREPARED,),
        because="the destination of a move that was given up reports before it is stopped",
    ),
    Row(events=FACTS, at=ATTEMPTED, of=(Attempt.OLDER,), because="a node reports on an attempt that is over"),
    Row(events=FACTS, at=(Standing.UNKNOWN,), because=_ENDED),
    Row(
        events=(JobProfiled, InterferenceDetected),
        at=ACTIVE,
        of=(Attempt.THIS,),
        because="introspection has measured it",
    ),
    Row(events=ALARMS, at=ACTIVE, of=(Attempt.THIS,), because="introspection sees that it does not get on"),
    Row(
        events=(*MEASURED, MigrationStarted),
        at=NOT_PLACED,
        of=(Attempt.THIS,),
        because=_ATTEMPT_ENDED,
    ),
    Row(
        events=(*MEASURED, MigrationStarted),
        at=ATTEMPTED,
        of=(Attempt.OLDER,),
        because=_ATTEMPT_ENDED,
    ),
    Row(events=(*MEASURED, MigrationStarted), at=(Standing.UNKNOWN,), because=_ENDED),
    Row(events=(MigrationStarted,), at=ACTIVE, of=(Attempt.THIS,), because="migration wants it elsewhere"),
    Row(events=(PackSucceeded, PackFailed), at=EVERYWHERE, because="a verdict on jobs that may have been parted"),
    # What placement itself decides: a plan is held against these rows before anything of it is said.
    Row(events=(JobPlaced,), at=(Standing.QUEUED,), of=(Attempt.THIS,), because="a mechanism gives it GPUs"),
    Row(
        events=(JobQueued, GangReserved),
        at=(Standing.QUEUED, Standing.SUSPENDED),
        of=(Attempt.THIS,),
        because="a mechanism says why it waits, or what is kept for it",
    ),
    Row(
        events=(GangReleased,),
        at=(Standing.QUEUED, *ACTIVE),
        of=(Attempt.THIS,),
        because="nothing is kept for it any more: it has GPUs, or does not wait for any",
    ),
    Row(events=(JobPreempted,), at=ACTIVE, of=(Attempt.THIS,), because="it is to leave its GPUs"),
    Row(
        events=(JobPacked,),
        at=(Standing.RUNNING, Standing.SUSPENDED),
        of=(Attempt.THIS,),
        because="it is to share its GPUs",
    ),
    Row(
        events=(DestinationReserved,),
        at=(Standing.RUNNING, Standing.SUSPENDED),
        of=(Attempt.NEWER,),
        because="it is to move, or to have more or fewer GPUs",
    ),
    Row(
        events=(UpgradeOffered, GuestExpelled),
        at=(Standing.RUNNING,),
        of=(Attempt.THIS,),
        because="it is a guest that might be an owner, or has slowed one down",
    ),
    Row(
        events=(UpgradeWithdrawn,),
        at=ATTEMPTED,
        of=(Attempt.THIS, Attempt.OLDER),
        because="it cannot be the owner of the GPUs that it has, or had, any more",
    ),
    Row(events=(MoveAbandoned,), at=(Standing.MOVING,), because="its move is given up"),
)


@dataclass(frozen=True)
class Change:
    """Events by which a job may get from one state to another."""

    events: tuple[type[Event], ...]
    before: Standing
    after: Standing


CHANGES = (
    Change((JobArrived,), Standing.UNKNOWN, Standing.ARRIVED),
    Change((JobRejected,), Standing.ARRIVED, Standing.UNKNOWN),
    Change((JobAdmitted,), Standing.ARRIVED, Standing.WAITING),
    Change((QuotaGranted, OpportunityGranted), Standing.WAITING, Standing.QUEUED),
    Change((JobCancelled,), Standing.WAITING, Standing.UNKNOWN),
    Change((JobPlaced,), Standing.QUEUED, Standing.RUNNING),
    Change((JobCancelled,), Standing.QUEUED, Standing.UNKNOWN),
    Change((JobSucceeded,), Standing.RUNNING, Standing.UNKNOWN),
    Change((JobQueued,), Standing.RUNNING, Standing.TRIED),
    Change((TimeSliceStarted,), Standing.RUNNING, Standing.SUSPENDED),
    Change((DestinationReserved,), Standing.RUNNING, Standing.MOVING),
    Change((JobPreempted, JobCancelRequested, JobExited, TimerFired, *ALARMS), Standing.RUNNING, Standing.STOPPING),
    Change((AttemptFailed,), Standing.RUNNING, Standing.FAILED),
    Change((TimeSliceStarted,), Standing.SUSPENDED, Standing.RUNNING),
    Change((JobQueued,), Standing.SUSPENDED, Standing.TRIED),
    Change((DestinationReserved,), Standing.SUSPENDED, Standing.MOVING),
    Change((JobPreempted, JobCancelRequested, JobExited, *ALARMS), Standing.SUSPENDED, Standing.STOPPING),
    Change((JobSucceeded,), Standing.SUSPENDED, Standing.UNKNOWN),
    Change((AttemptFailed,), Standing.SUSPENDED, Standing.FAILED),
    Change((JobMoved, MoveAbandoned), Standing.MOVING, Standing.RUNNING),
    Change((MoveAbandoned,), Standing.MOVING, Standing.SUSPENDED),
    Change((JobCancelRequested, JobExited, *ALARMS), Standing.MOVING, Standing.STOPPING),
    Change((JobQueued,), Standing.STOPPING, Standing.QUEUED),
    Change((JobQueued,), Standing.STOPPING, Standing.WAITING),
    Change((JobQueued,), Standing.QUEUED, Standing.WAITING),
    Change((JobQueued,), Standing.STOPPING, Standing.TRIED),
    Change((JobSucceeded, JobCancelled), Standing.STOPPING, Standing.UNKNOWN),
    Change((AttemptFailed,), Standing.STOPPING, Standing.FAILED),
    Change((TrialPassed,), Standing.TRIED, Standing.QUEUED),
    Change((JobCancelled,), Standing.TRIED, Standing.UNKNOWN),
    Change((RetryScheduled,), Standing.FAILED, Standing.WAITING),
    Change((JobAbandoned,), Standing.FAILED, Standing.UNKNOWN),
)


ENTRIES: dict[tuple[type[Event], Standing, Attempt], Row] = {
    (cls, at, of): row for row in TABLE for cls in row.events for at in row.at for of in row.of
}
"""{(event type, state of the job, attempt): row}."""
JUDGED: dict[type[Event], None] = dict.fromkeys(cls for row in TABLE for cls in row.events)
"""The event types that the table is about."""


@machine.judges
def impossible(cell: Cell, event: Event) -> str | None:
    """Why the event cannot be, as a sentence; None: it can."""
    if type(event) not in JUDGED:
        return None
    job = cell.jobs.get(event.subject)
    entry = type(event), standing(job), attempt_of(job, event)
    if entry in ENTRIES:
        return None
    _, state_of_job, attempt = entry
    number = getattr(event, "attempt", None)
    about = "" if number is None else f" (attempt {number}, {attempt})"
    now = f", attempt {job.attempt}" if job is not None and job.attempt else ""
    return (
        f"{type(event).__name__}{about} cannot be said of job {event.subject}, which is {state_of_job}{now}; "
        f"expected: {_expected(type(event))}"
    )


def _expected(cls: type[Event]) -> str:
    """Where events of a type may be, in words."""
    found: dict[Attempt, list[str]] = {}
    for event_type, at, of in ENTRIES:
        if event_type is cls:
            found.setdefault(of, []).append(at.value)
    return "; ".join(
        " or ".join(places) + ("" if of is Attempt.NONE else f" ({of} attempt)") for of, places in found.items()
    )


def diagram() -> str:
    """The states and what leads from one to another, as a picture in Mermaid; `[*]` stands for unknown jobs."""
    lines = ["stateDiagram-v2"]
    for change in CHANGES:
        ends = ["[*]" if at is Standing.UNKNOWN else at.value for at in (change.before, change.after)]
        lines.append(f"    {ends[0]} --> {ends[1]}: {' / '.join(cls.__name__ for cls in change.events)}")
    return "\n".join(lines)
