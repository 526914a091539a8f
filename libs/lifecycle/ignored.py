"""The event types of control that change no job's life, each with the reason. A test holds the list complete."""

from __future__ import annotations

from libs.contracts.admission import JobAdmitted
from libs.contracts.agent import (
    DataChecked,
    GpuRecovered,
    GpuUnhealthy,
    JobMovable,
    JobRanksApart,
    JobReady,
    JobRestored,
    JobSettingUp,
    MetricsReported,
    NodeErrorsLogged,
    NodeLeaving,
)
from libs.contracts.base import Event
from libs.contracts.failure_analysis import FailureClassified
from libs.contracts.gateway import (
    ArrayArrived,
    DagArrived,
    DeadLetterRetried,
    GroupChangeRequested,
    JobCodeChanged,
    JobMaxGpusChanged,
    JobPriorityChanged,
    JobSessionClosed,
    JobSessionOpened,
    NodeDrainRequested,
    NodeUndrainRequested,
    PolicyChanged,
    SettingChanged,
    SweepArrived,
    SweepCancelRequested,
    TenantConfigured,
    ThroughputsProvided,
)
from libs.contracts.introspection import (
    GpuIdle,
    HostProfiled,
    JobConverged,
    JobProfiled,
    JobRecovered,
    JobStalled,
    LossDiverged,
    PackFailed,
    PackSucceeded,
)
from libs.contracts.migration import MigrationAssessed, NodeDrained
from libs.contracts.placement import (
    AllocationComputed,
    AllocationRequested,
    DestinationReserved,
    GangReleased,
    GangReserved,
    JobPacked,
    JobResized,
    JobUnpacked,
    MoveAbandoned,
    RoundStarted,
    ThroughputEstimated,
)
from libs.contracts.runtime import ServiceStarted, TimerFired
from libs.contracts.sweeps import SweepEnded, TrialDemoted, TrialEnded, TrialPromoted, TrialPruned, TrialStarted

_NO_JOB = "is about no job"
_ALARM = "is a warning; where a tenant wants the job stopped for it, placement says so"
_OF_GROUPS = "is about an array or a DAG; what becomes of its jobs is said by events of the jobs"
_OF_SWEEPS = "is about a sweep; what becomes of the jobs of its trials is said by events of the jobs"

IGNORED: dict[type[Event], str] = {
    AllocationComputed: "promises time; a placement or a lease that follows is told by JobPlaced",
    AllocationRequested: _NO_JOB,
    ArrayArrived: _OF_GROUPS,
    DagArrived: _OF_GROUPS,
    DataChecked: "measures; an attempt that must not go on with such data says how it ends",
    DeadLetterRetried: _NO_JOB,
    DestinationReserved: "keeps GPUs for a move; the job uses those that it has until JobMoved",
    FailureClassified: "judges an attempt that has failed; what follows is RetryScheduled or JobAbandoned",
    GangReleased: "ends what GangReserved has begun",
    GangReserved: "keeps GPUs free; the job holds none before JobPlaced",
    GpuIdle: _ALARM,
    GpuRecovered: _NO_JOB,
    GroupChangeRequested: _OF_GROUPS,
    GpuUnhealthy: "is about no job; tasks on the GPU go on, or tell their end",
    HostProfiled: _NO_JOB,
    JobAdmitted: "leaves the job waiting, for quota",
    JobCodeChanged: "changes what the next attempt starts with, not the job's state",
    JobConverged: "measures; where the job asked to be stopped for it, JobCancelRequested says so",
    JobMaxGpusChanged: "bounds what may follow; JobMoved says on which GPUs",
    JobMovable: "tells an ability, not a change",
    JobPacked: "says with which job GPUs are shared; which GPUs is told by TimeSliceStarted or JobPlaced",
    JobPriorityChanged: "changes the order of the queue, not the job's state",
    JobProfiled: "measures; nothing changes",
    JobRanksApart: "is a warning; the attempt goes on",
    JobRecovered: "ends a warning; the attempt has gone on all the time",
    JobReady: "is about the destination's task, which does not count before JobMoved",
    JobResized: "names a width; JobMoved says on which GPUs",
    JobRestored: "is about the destination's task, which does not count before JobMoved",
    JobSettingUp: "comes before the start; the attempt stays as it is until then",
    JobSessionClosed: "ends what JobSessionOpened has begun",
    JobSessionOpened: "is about a user's processes beside the job's own, which go on",
    JobStalled: _ALARM,
    JobUnpacked: "ends what JobPacked has begun",
    LossDiverged: _ALARM,
    MetricsReported: "measures; nothing changes",
    MigrationAssessed: "measures a move that is over",
    MoveAbandoned: "ends what DestinationReserved has begun; MigrationFailed ends the move",
    NodeDrainRequested: "is about no job; jobs that must leave are told to by JobPreempted or MigrationStarted",
    NodeDrained: _NO_JOB,
    NodeErrorsLogged: _NO_JOB,
    NodeLeaving: "is about no job; its jobs are told to leave by JobPreempted",
    NodeUndrainRequested: _NO_JOB,
    PackFailed: "judges a pack; JobUnpacked follows",
    PackSucceeded: "judges a pack, which stays",
    PolicyChanged: _NO_JOB,
    RoundStarted: "names leases; a lease takes effect with the job's next JobPlaced",
    ServiceStarted: _NO_JOB,
    SettingChanged: _NO_JOB,
    SweepArrived: _OF_SWEEPS,
    SweepCancelRequested: _OF_SWEEPS,
    SweepEnded: _OF_SWEEPS,
    TenantConfigured: _NO_JOB,
    ThroughputEstimated: _NO_JOB,
    ThroughputsProvided: _NO_JOB,
    TimerFired: _NO_JOB,
    TrialDemoted: _OF_SWEEPS,
    TrialEnded: _OF_SWEEPS,
    TrialPromoted: _OF_SWEEPS,
    TrialPruned: _OF_SWEEPS,
    TrialStarted: _OF_SWEEPS,
}
"""{event type: why}. Other topics repeat decisions (orders) or are not kept (telemetry, logs): no fold reads them."""
