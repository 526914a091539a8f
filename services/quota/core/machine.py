"""The whole table of quota: importing the subjects fills it."""

from __future__ import annotations

from services.quota.core import capacity, claims, granting, measuring, reclaiming, upgrading
from services.quota.core.table import machine

__all__ = ["capacity", "claims", "granting", "machine", "measuring", "reclaiming", "upgrading"]
