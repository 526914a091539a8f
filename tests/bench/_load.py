"""Whether a machine is quiet enough for figures of wall time."""

from __future__ import annotations

import psutil

BUSY = 0.10
"""Part of the machine that other processes take, above which it is busy."""
LOOK_S = 2.0


def in_use() -> float:
    """Part of the machine's CPUs that is in use, while nothing of a measurement has begun."""
    return float(psutil.cpu_percent(interval=LOOK_S)) / 100.0


def said(part: float) -> str:
    """For the title of results; empty: the machine was quiet."""
    return " (the machine was BUSY: to be measured again)" if part > BUSY else ""
