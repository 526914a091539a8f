"""The baselines by name."""

from __future__ import annotations

from collections.abc import Callable

from services.placement.core.policies.allocation.problem import Problem, Solution
from services.placement.core.policies.baselines.allox import allox
from services.placement.core.policies.baselines.gandiva_packing import gandiva_packing
from services.placement.core.policies.baselines.isolated import isolated

BASELINES: dict[str, Callable[[Problem], Solution]] = {
    "allox": allox,
    "isolated": isolated,
    "gandiva_packing": gandiva_packing,
}
