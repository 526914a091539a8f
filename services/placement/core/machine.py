"""The whole table of placement: importing the subjects fills it."""

from __future__ import annotations

from services.placement.core import arrivals, attempts, nodes, requests, scheduling
from services.placement.core.moving import abandoning, handing_over, starting
from services.placement.core.table import machine

__all__ = [
    "abandoning",
    "arrivals",
    "attempts",
    "handing_over",
    "machine",
    "nodes",
    "requests",
    "scheduling",
    "starting",
]
