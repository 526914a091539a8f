"""The door plate of sweeps."""

from __future__ import annotations

from libs.contracts.gateway import (
    JobArrived,
    JobCancelRequested,
    JobPauseRequested,
    JobPriorityChanged,
    JobResumeRequested,
)
from libs.contracts.sweeps import (
    OWNER,
)
from libs.kernel.service import Service
from services.sweeps.core.machine import machine
from services.sweeps.core.state import State, check

SERVICE = Service(
    name=OWNER,
    question="Which trial is next, which promises most, and which is hopeless?",
    machine=machine,
    state_type=State,
    requests=(JobArrived, JobPriorityChanged, JobCancelRequested, JobPauseRequested, JobResumeRequested),
    check=check,
)
