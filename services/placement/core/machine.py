"""The whole table of placement: importing the subjects fills it."""

from __future__ import annotations

from services.placement.core import arrivals, attempts, nodes, requests, scheduling
from services.placement.core.table import machine

__all__ = ["arrivals", "attempts", "machine", "nodes", "requests", "scheduling"]
