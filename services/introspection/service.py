"""The door plate of introspection."""

from __future__ import annotations

from libs.contracts.introspection import OWNER, JobProfiled, NodeLost, WindowClosed
from libs.kernel.service import Service
from services.introspection.core.machine import machine, next_wakeup
from services.introspection.core.state import State

SERVICE = Service(
    name=OWNER,
    question="What is going on?",
    machine=machine,
    state_type=State,
    observes=(JobProfiled, NodeLost, WindowClosed),
    next_wakeup=next_wakeup,
)
