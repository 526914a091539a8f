"""The door plate of quota."""

from __future__ import annotations

from libs.contracts.quota import OWNER
from libs.kernel.service import Service
from services.quota.core.claims import next_wakeup
from services.quota.core.machine import machine
from services.quota.core.present import present
from services.quota.core.state import State, check

SERVICE = Service(
    name=OWNER,
    question="Which tenant's share is it?",
    machine=machine,
    state_type=State,
    next_wakeup=next_wakeup,
    check=check,
    present=present,
)
