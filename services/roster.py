"""The only list of services. The shells, the simulator and the audit read it: by the package's entry point, because
libraries import no service (`libs/runtime/roster.py`).

A process that runs one service imports that one alone, and one that wants names imports none: all of them together take
longer to import than everything else that a process does until it works.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from libs.kernel.service import Service

NAMES = ("admission", "quota", "placement", "introspection", "migration", "failure_analysis", "sweeps")
"""Of every deterministic core, in the order in which a new job meets them; last, the one that submits jobs itself."""

SERVICES: tuple[Service[Any], ...]
"""The cores, in the order of their names; imported when they are first asked for."""


def service(name: str) -> Service[Any]:
    """The service of this name.

    Raises:
        KeyError: there is none; the message lists those that exist.
    """
    if name not in NAMES:
        raise KeyError(f"no service {name!r}; there are {', '.join(NAMES)}")
    found: Service[Any] = import_module(f"services.{name}.service").SERVICE
    return found


@cache
def _all() -> tuple[Service[Any], ...]:
    # Spelled out, so that a tool that reads imports without running them sees what this module leads to.
    from services.admission.service import SERVICE as ADMISSION
    from services.failure_analysis.service import SERVICE as FAILURE_ANALYSIS
    from services.introspection.service import SERVICE as INTROSPECTION
    from services.migration.service import SERVICE as MIGRATION
    from services.placement.service import SERVICE as PLACEMENT
    from services.quota.service import SERVICE as QUOTA
    from services.sweeps.service import SERVICE as SWEEPS

    return (ADMISSION, QUOTA, PLACEMENT, INTROSPECTION, MIGRATION, FAILURE_ANALYSIS, SWEEPS)


def __getattr__(name: str) -> tuple[Service[Any], ...]:
    if name != "SERVICES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _all()
