"""The only list of services. The shells, the simulator and the audit read it."""

from __future__ import annotations

from typing import Any

from libs.kernel.service import Service
from services.admission.service import SERVICE as ADMISSION
from services.failure_analysis.service import SERVICE as FAILURE_ANALYSIS
from services.introspection.service import SERVICE as INTROSPECTION
from services.migration.service import SERVICE as MIGRATION
from services.placement.service import SERVICE as PLACEMENT
from services.quota.service import SERVICE as QUOTA

SERVICES: tuple[Service[Any], ...] = (ADMISSION, QUOTA, PLACEMENT, INTROSPECTION, MIGRATION, FAILURE_ANALYSIS)
"""Every deterministic core, in the order in which a new job meets them."""


def service(name: str) -> Service[Any]:
    """The service of this name.

    Raises:
        KeyError: there is none; the message lists those that exist.
    """
    for candidate in SERVICES:
        if candidate.name == name:
            return candidate
    raise KeyError(f"no service {name!r}; there are {', '.join(s.name for s in SERVICES)}")
