"""The door plate of admission."""

from __future__ import annotations

from libs.contracts.admission import OWNER
from libs.kernel.service import Service
from services.admission.core.machine import machine
from services.admission.core.state import State

SERVICE = Service(
    name=OWNER,
    question="Can this job ever run here?",
    machine=machine,
    state_type=State,
)
