"""The whole table of migration: importing the subjects fills it."""

from __future__ import annotations

from services.migration.core import draining, improving, moves, seats, servers, starting
from services.migration.core.table import machine

__all__ = ["draining", "improving", "machine", "moves", "seats", "servers", "starting"]
