"""The table of what each event does, filled by the subjects."""

from __future__ import annotations

from libs.contracts.admission import OWNER
from libs.kernel.machine import Machine
from services.admission.core.state import State

machine: Machine[State] = Machine(OWNER)
