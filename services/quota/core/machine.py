"""The whole table of quota: importing the subjects fills it."""

from __future__ import annotations

from services.quota.core import claims, granting, measuring, upgrading
from services.quota.core.table import machine

__all__ = ["claims", "granting", "machine", "measuring", "upgrading"]
