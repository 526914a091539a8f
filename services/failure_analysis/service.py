"""The door plate of failure analysis."""

from __future__ import annotations

from libs.contracts.failure_analysis import OWNER
from libs.kernel.service import Service
from services.failure_analysis.core.machine import machine
from services.failure_analysis.core.state import State

SERVICE = Service(
    name=OWNER,
    question="Why did it fail, and can a retry help?",
    machine=machine,
    state_type=State,
)
