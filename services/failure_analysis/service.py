"""The door plate of failure analysis."""

from __future__ import annotations

from libs.contracts.failure_analysis import OWNER, FailureObserved, RulesLoaded
from libs.kernel.service import Service
from services.failure_analysis.core.machine import machine, next_wakeup
from services.failure_analysis.core.state import State

SERVICE = Service(
    name=OWNER,
    question="Why did it fail, and what follows?",
    machine=machine,
    state_type=State,
    observes=(RulesLoaded, FailureObserved),
    next_wakeup=next_wakeup,
)
