"""The door plate of admission."""

from __future__ import annotations

from libs.contracts.admission import OWNER
from libs.kernel.service import Service
from services.admission.core.machine import machine, next_wakeup
from services.admission.core.present import present
from services.admission.core.state import State, check

SERVICE = Service(
    name=OWNER,
    question="Can this job ever run here, and what has to end before it?",
    machine=machine,
    state_type=State,
    next_wakeup=next_wakeup,
    check=check,
    present=present,
)
