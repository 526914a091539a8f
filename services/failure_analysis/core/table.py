"""The table of the core; the modules beside it fill it in."""

from __future__ import annotations

from libs.contracts.failure_analysis import OWNER, FailureObserved, RulesLoaded
from libs.kernel.machine import Machine
from services.failure_analysis.core.state import State

machine: Machine[State] = Machine(OWNER)
machine.hears(RulesLoaded, FailureObserved)
