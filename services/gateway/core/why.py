"""Why a job is where it is: the reasons that stand on the log, check by check, never re-invented."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from libs.contracts.admission import (
    JobAdmitted,
    JobHeldBack,
    JobRejected,
    TrialFailed,
    TrialOrdered,
    TrialPassed,
    TrialSkipped,
)
from libs.contracts.agent import (
    ComputeShareChanged,
    GuestMisbehaved,
    JobRanksApart,
    JobSettingUp,
    MemoryBurst,
    MemoryLimitChanged,
)
from libs.contracts.base import Event
from libs.contracts.failure_analysis import FailureClassified, JobAbandoned, RetryScheduled
from libs.contracts.gateway import JobArrived, JobResumeRequested
from libs.contracts.introspection import (
    GpuIdle,
    InterferenceDetected,
    JobConverged,
    JobRecovered,
    JobStalled,
    JobStuck,
    LossDiverged,
)
from libs.contracts.migration import MigrationAssessed, MigrationCompleted, MigrationFailed, MigrationStarted
from libs.contracts.placement import (
    AttemptFailed,
    GangReleased,
    GangReserved,
    GuestExpelled,
    JobCancelled,
    JobMoved,
    JobPlaced,
    JobPreempted,
    JobQueued,
    JobResized,
    JobSucceeded,
    MoveAbandoned,
    UpgradeOffered,
    UpgradeWithdrawn,
)
from libs.contracts.quota import (
    JobUpgraded,
    OpportunityGranted,
    QuotaDeferred,
    QuotaGranted,
    QuotaReclaimed,
    UpgradeDeclined,
)
from libs.contracts.read_models import EventRow, JobRow, JobState

CAUSE, NOT_THE_CAUSE, NOT_ASKED = "the cause", "not the cause", "not asked yet"


@dataclass(frozen=True)
class Check:
    """What one service has said of the job last."""

    check: str
    verdict: str
    """`the cause`, `not the cause` or `not asked yet`."""
    code: str = ""
    message: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)
    rejected: list[dict[str, Any]] = field(default_factory=list)
    event: str = ""
    """Type of the event that says so."""
    offset: int | None = None
    time_s: float | None = None


_CHECKS: tuple[tuple[str, tuple[type[Event], ...]], ...] = (
    ("admission", (JobAdmitted, JobHeldBack, JobRejected, TrialOrdered, TrialPassed, TrialFailed, TrialSkipped)),
    ("quota", (QuotaGranted, OpportunityGranted, QuotaDeferred, QuotaReclaimed, JobUpgraded, UpgradeDeclined)),
    (
        "placement",
        (
            JobQueued,
            JobPlaced,
            JobMoved,
            JobResized,
            MoveAbandoned,
            JobPreempted,
            AttemptFailed,
            JobSucceeded,
            JobCancelled,
            GangReserved,
            GangReleased,
            UpgradeOffered,
            UpgradeWithdrawn,
            GuestExpelled,
        ),
    ),
    ("agent", (JobRanksApart, JobSettingUp, MemoryLimitChanged, ComputeShareChanged, MemoryBurst, GuestMisbehaved)),
    ("introspection", (JobStuck, JobStalled, GpuIdle, JobRecovered, LossDiverged, InterferenceDetected, JobConverged)),
    ("migration", (MigrationStarted, MigrationCompleted, MigrationFailed, MigrationAssessed)),
    ("failure_analysis", (FailureClassified, RetryScheduled, JobAbandoned)),
)
_ALWAYS = ("admission", "quota", "placement")
"""Every job is asked about there; the others speak only when something happens."""


def checks(job: JobRow, events: Sequence[EventRow]) -> list[Check]:
    """The last word of each service about the job, in the order in which a job meets them.

    Args:
        events: everything on control about the job, in order.
    """
    awaited = _awaited(job, events)
    found: list[Check] = []
    for name, classes in _CHECKS:
        types = {cls.wire_type for cls in classes}
        last = next((row for row in reversed(events) if row.type in types), None)
        is_cause = name == awaited or (last is not None and last.log_offset == job.reason_offset and not awaited)
        if last is not None:
            found.append(_check(name, CAUSE if is_cause else NOT_THE_CAUSE, last))
        elif name in _ALWAYS:
            found.append(Check(name, CAUSE if is_cause else NOT_ASKED))
    return found


_NEXT = {
    JobArrived.wire_type: "admission",
    JobAdmitted.wire_type: "quota",
    QuotaGranted.wire_type: "placement",
    OpportunityGranted.wire_type: "placement",
    JobResumeRequested.wire_type: "placement",
}
"""After which event which service has the word."""


def _awaited(job: JobRow, events: Sequence[EventRow]) -> str:
    """The service that a waiting job's last event was handed to; empty when none is awaited."""
    if job.state is not JobState.QUEUED:
        return ""
    decided = next((row.type for row in events if row.log_offset == job.reason_offset), "")
    return _NEXT.get(decided, "")


def _check(name: str, verdict: str, row: EventRow) -> Check:
    reason = row.data.get("reason") or {}
    return Check(
        check=name,
        verdict=verdict,
        code=reason.get("code", ""),
        message=reason.get("message", "") or _say(row),
        numbers=reason.get("numbers", {}),
        rejected=reason.get("rejected", []),
        event=row.type,
        offset=row.log_offset,
        time_s=row.time_s,
    )


def _say(row: EventRow) -> str:
    """A sentence for an event that carries no reason of its own."""
    data = row.data
    if row.type == FailureClassified.wire_type:
        helps = "a retry can help" if data["retry_can_help"] else "a retry cannot help"
        return f"{data['failure']} ({data['category']}): {data['deciding_line']}; {helps}"
    if row.type == JobSucceeded.wire_type:
        return "every task exited with code 0"
    if row.type == MigrationAssessed.wire_type:
        return f"{data['gain_ratio']:+.1%} mini-batches per second at the new place"
    if row.type == MigrationCompleted.wire_type:
        return f"moved to {', '.join(data['to_nodes'])}"
    return ""
