"""The door plate of introspection."""

from __future__ import annotations

from libs.contracts.gateway import JobCancelRequested
from libs.contracts.introspection import (
    OWNER,
    ClockSkewed,
    GpuIdle,
    GpuLoadChanged,
    HostProfiled,
    JobProfiled,
    JobRecovered,
    JobStalled,
    JobStuck,
    LossDiverged,
    NodeLost,
    WindowClosed,
)
from libs.kernel.service import Service
from services.introspection.core.machine import machine, next_wakeup
from services.introspection.core.state import State

SERVICE = Service(
    name=OWNER,
    question="What is going on?",
    machine=machine,
    state_type=State,
    requests=(JobCancelRequested,),
    observes=(
        JobProfiled,
        GpuLoadChanged,
        NodeLost,
        ClockSkewed,
        WindowClosed,
        JobStalled,
        JobStuck,
        GpuIdle,
        JobRecovered,
        LossDiverged,
        HostProfiled,
    ),
    next_wakeup=next_wakeup,
)
