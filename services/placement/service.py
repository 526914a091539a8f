"""The door plate of placement."""

from __future__ import annotations

from libs.contracts.placement import (
    OWNER,
)
from libs.kernel.service import Service
from services.placement.core.cell import Cell
from services.placement.core.check import check
from services.placement.core.machine import machine
from services.placement.core.present import present
from services.placement.core.scheduler import next_wakeup
from services.placement.core.state import State

SERVICE: Service[Cell] = Service(
    name=OWNER,
    question="Which GPUs, and when?",
    machine=machine,
    state_type=State,
    next_wakeup=next_wakeup,
    check=check,
    present=present,
)
