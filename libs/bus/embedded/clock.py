"""The log's clock: one for all processes that write the file, whatever their own clocks show.

It goes on with the kernel's clock since boot, which is the same for all of them and which nobody can set. The file has
an anchor: at so many seconds after the boot the log's time was that. What the machine's own clock shows counts at the
first write after a boot; later it draws the log's clock towards itself, slowly, so that a correction by NTP is followed
and a clock that was set wrong neither ends a time slice nor keeps one from ending.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import NamedTuple

from libs.contracts.envelope import whole_microseconds

TABLE = """CREATE TABLE IF NOT EXISTS clock (
     one INTEGER PRIMARY KEY CHECK (one = 1),
     boot TEXT NOT NULL, boottime_s REAL NOT NULL, log_s REAL NOT NULL, rate REAL NOT NULL)"""
"""Made at the first write. A Sanjaya that knows nothing of it dates its records by its own clock."""

ANCHOR_EVERY_S = 10.0
MOST_DRAWN = 0.005
"""The log's clock is at most so much faster or slower than the kernel's: a slice of 8 s is off by 0.04 s."""
DRAWN_WITHIN_S = 300.0
"""A small difference from the machine's clock is gone after a few times so long."""


class Anchor(NamedTuple):
    """The log's time at a moment after a boot, and how much faster than the kernel's clock it goes on."""

    boot: str
    boottime_s: float
    log_s: float
    rate: float

    def at(self, boottime_s: float) -> float:
        """The log's time so many seconds after the same boot."""
        return self.log_s + (boottime_s - self.boottime_s) * (1.0 + self.rate)


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class LogClock:
    """The log's clock, as one connection sees it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection, self._boot, self._made = connection, _boot(), False

    def now_s(self) -> float:
        """The log's time, seconds since the epoch, whole microseconds; within a write transaction."""
        if not self._made:
            self._connection.execute(TABLE)
            self._made = True
        return whole_microseconds(self._at(time.clock_gettime(time.CLOCK_BOOTTIME), time.time()))

    def _at(self, boottime_s: float, machine_s: float) -> float:
        anchor = self._anchor()
        if anchor is None:
            return self._anchor_at(boottime_s, machine_s, 0.0)
        if anchor.boot != self._boot:
            return self._anchor_at(boottime_s, max(anchor.log_s, machine_s), 0.0)
        log_s = anchor.at(boottime_s)
        if boottime_s - anchor.boottime_s >= ANCHOR_EVERY_S:
            drawn = (machine_s - log_s) / DRAWN_WITHIN_S
            self._anchor_at(boottime_s, log_s, max(-MOST_DRAWN, min(MOST_DRAWN, drawn)))
        return log_s

    def _anchor(self) -> Anchor | None:
        row = self._connection.execute("SELECT boot, boottime_s, log_s, rate FROM clock").fetchone()
        return Anchor(*row) if row else None

    def _anchor_at(self, boottime_s: float, log_s: float, rate: float) -> float:
        self._connection.execute(
            "INSERT OR REPLACE INTO clock VALUES (1, ?, ?, ?, ?)", (self._boot, boottime_s, log_s, rate)
        )
        return log_s

    def read_s(self) -> float | None:
        """The log's time, without a write transaction; None where no record of this boot has been written."""
        known = self._connection.execute("SELECT 1 FROM sqlite_master WHERE name='clock'").fetchone()
        anchor = self._anchor() if known else None
        if anchor is None or anchor.boot != self._boot:
            return None
        return anchor.at(time.clock_gettime(time.CLOCK_BOOTTIME))
