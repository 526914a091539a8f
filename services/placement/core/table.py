"""The table that the subjects (arrivals, attempts, nodes, requests, scheduling) fill."""

from __future__ import annotations

from libs.contracts.placement import OWNER
from libs.kernel.machine import Machine
from services.placement.core.state import State

machine: Machine[State] = Machine(OWNER)
