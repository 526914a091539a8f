"""The table of the core; the modules beside it fill it in."""

from __future__ import annotations

from libs.contracts.introspection import OWNER, JobProfiled
from libs.kernel.machine import Machine
from services.introspection.core.state import State

machine: Machine[State] = Machine(OWNER)
machine.hears(JobProfiled)
