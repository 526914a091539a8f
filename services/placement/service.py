"""The door plate of placement."""

from __future__ import annotations

from libs.contracts.placement import (
    OWNER,
    AllocationComputed,
    AllocationRequested,
    AttemptFailed,
    DestinationReserved,
    GangReleased,
    GangReserved,
    JobCancelled,
    JobMoved,
    JobPacked,
    JobPlaced,
    JobPreempted,
    JobQueued,
    JobResized,
    JobSucceeded,
    JobUnpacked,
    LaunchTask,
    MoveAbandoned,
    RestoreTask,
    ResumeTask,
    RoundStarted,
    StopTask,
    SuspendTask,
    ThroughputEstimated,
    TimeSliceStarted,
)
from libs.kernel.service import Service
from services.placement.core.cell import Cell
from services.placement.core.check import check
from services.placement.core.machine import machine
from services.placement.core.scheduler import next_wakeup
from services.placement.core.state import State

SERVICE: Service[Cell] = Service(
    name=OWNER,
    question="Which GPUs, and when?",
    machine=machine,
    state_type=State,
    emits=(
        JobQueued,
        AllocationRequested,
        AllocationComputed,
        ThroughputEstimated,
        RoundStarted,
        TimeSliceStarted,
        GangReserved,
        GangReleased,
        JobPlaced,
        JobPacked,
        JobUnpacked,
        JobPreempted,
        DestinationReserved,
        JobMoved,
        JobResized,
        MoveAbandoned,
        AttemptFailed,
        JobSucceeded,
        JobCancelled,
        LaunchTask,
        StopTask,
        SuspendTask,
        ResumeTask,
        RestoreTask,
    ),
    next_wakeup=next_wakeup,
    check=check,
)
