"""The event types of control that change no row but their own (`events`, `event_counts`), each with the reason."""

from __future__ import annotations

from libs.contracts.admission import TrialFailed, TrialOrdered, TrialPassed, TrialSkipped
from libs.contracts.agent import (
    ComputeShareChanged,
    DataChecked,
    GuestMisbehaved,
    JobMovable,
    JobReady,
    JobRestored,
    MemoryBurst,
    MemoryLimitChanged,
    MemoryTraded,
    NodeLeaving,
    NodeTested,
)
from libs.contracts.base import Event
from libs.contracts.failure_analysis import FailureObserved, GpuSuspected, NodeSuspected, RulesLoaded
from libs.contracts.gateway import (
    DeadLetterRetried,
    GroupChangeRequested,
    InputReleaseRequested,
    JobSessionClosed,
    JobSessionOpened,
    LimitsRequested,
    ThroughputsProvided,
)
from libs.contracts.introspection import InterferenceDetected, PackFailed, PackSucceeded
from libs.contracts.migration import MigrationAssessed
from libs.contracts.placement import (
    AllocationComputed,
    AllocationRequested,
    DestinationReserved,
    GuestExpelled,
    JobPacked,
    JobResized,
    JobUnpacked,
    MoveAbandoned,
    RoundStarted,
    ThroughputEstimated,
)
from libs.contracts.quota import QuotaReclaimed, UpgradeDeclined
from libs.contracts.runtime import ClockRepaired, ServiceStarted, TimerFired

_COORDINATION = "is about jobs that share GPUs, which no column tells yet"
_BOOKS_OF_PLACEMENT = "belongs to placement's books; what it means for a job is told by JobPlaced or TimeSliceStarted"
_BEFORE_THE_MOVE = "is about a move's destination, which has no row before JobMoved"
_BEFORE_THE_CORDON = "suspects; NodeCordoned, which follows, changes the rows"

IGNORED: dict[type[Event], str] = {
    AllocationComputed: _BOOKS_OF_PLACEMENT,
    AllocationRequested: _BOOKS_OF_PLACEMENT,
    ClockRepaired: "moves the times of cores; rows keep the dates that the log gave them",
    ComputeShareChanged: _COORDINATION,
    DataChecked: "names places in files, which no column has",
    DeadLetterRetried: "is about a record of another topic; its own row tells of it",
    DestinationReserved: _BEFORE_THE_MOVE,
    FailureObserved: "tells of a line; FailureClassified, which follows, has the columns",
    GpuSuspected: _BEFORE_THE_CORDON,
    GroupChangeRequested: "asks for what the requests to its jobs tell",
    GuestExpelled: "says why a guest leaves; its suspension or preemption follows",
    GuestMisbehaved: _COORDINATION,
    InputReleaseRequested: "asks for what InputReleased tells",
    InterferenceDetected: _COORDINATION,
    JobMovable: "tells an ability of a task, which no column has",
    JobPacked: _BOOKS_OF_PLACEMENT,
    JobReady: _BEFORE_THE_MOVE,
    JobResized: "names a width; JobMoved says on which GPUs",
    JobRestored: _BEFORE_THE_MOVE,
    JobSessionClosed: "ends what JobSessionOpened has begun",
    JobSessionOpened: "is about a user's processes beside the job's own, which no column has",
    JobUnpacked: _BOOKS_OF_PLACEMENT,
    LimitsRequested: _COORDINATION,
    MemoryBurst: _COORDINATION,
    MemoryLimitChanged: _COORDINATION,
    MemoryTraded: _COORDINATION,
    MigrationAssessed: "measures a move that is over, which no column has",
    MoveAbandoned: _BEFORE_THE_MOVE,
    NodeLeaving: "announces that NodeLeft comes; its jobs are told to leave by JobPreempted",
    NodeSuspected: _BEFORE_THE_CORDON,
    NodeTested: "tells what was found; NodeReturned follows where all is well",
    PackFailed: _BOOKS_OF_PLACEMENT,
    PackSucceeded: _BOOKS_OF_PLACEMENT,
    QuotaReclaimed: "says which jobs give borrowed GPUs back; what becomes of each is told by its own events",
    RoundStarted: "names leases; a lease takes effect with the job's next JobPlaced",
    RulesLoaded: "is about no job, node, tenant or sweep; its count is a row",
    ServiceStarted: "is about no job, node, tenant or sweep; its count is a row",
    ThroughputEstimated: _BOOKS_OF_PLACEMENT,
    ThroughputsProvided: "is an operators' table; placement reads it",
    TrialFailed: "says in what the job has failed; JobAbandoned tells its end",
    TrialOrdered: "says what the next attempt is; that has a row of its own when it is placed",
    TrialPassed: "judges an attempt that is over; what follows is told by JobPlaced or RetryScheduled",
    TrialSkipped: "says what the next attempt is; that has a row of its own when it is placed",
    TimerFired: "is about no job, node, tenant or sweep; its count is a row",
    UpgradeDeclined: _COORDINATION,
}
"""{event type: why}. A type that has neither a handler nor a line here fails a test."""
