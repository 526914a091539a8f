"""The whole table of migration: importing the subjects fills it."""

from __future__ import annotations

from services.migration.core import assignments, draining, improving, moves, servers, starting
from services.migration.core.table import machine

__all__ = ["assignments", "draining", "improving", "machine", "moves", "servers", "starting"]
