"""The door plate of migration."""

from __future__ import annotations

from libs.contracts.migration import (
    OWNER,
)
from libs.kernel.service import Service
from services.migration.core.improving import next_wakeup
from services.migration.core.machine import machine
from services.migration.core.state import State, check

SERVICE = Service(
    name=OWNER,
    question="What should move?",
    machine=machine,
    state_type=State,
    next_wakeup=next_wakeup,
    check=check,
)
