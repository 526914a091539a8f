"""The door plate of introspection."""

from __future__ import annotations

from libs.contracts.introspection import (
    OWNER,
    GpuIdle,
    JobProfiled,
    JobRecovered,
    JobStalled,
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
    observes=(JobProfiled, NodeLost, WindowClosed, JobStalled, GpuIdle, JobRecovered, LossDiverged),
    next_wakeup=next_wakeup,
)
