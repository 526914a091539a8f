"""The table that the subjects (assignments, servers, draining, moves, improving) fill."""

from __future__ import annotations

from libs.contracts.migration import OWNER
from libs.kernel.machine import Machine
from services.migration.core.state import State

machine: Machine[State] = Machine(OWNER)
