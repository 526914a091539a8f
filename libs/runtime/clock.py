"""Where shells get the time from. Cores never see a clock: they learn the time from events."""

from __future__ import annotations

import asyncio
import heapq
from typing import Protocol

from libs.bus.steady import steady_s
from libs.contracts.envelope import whole_microseconds

_LONGEST_NAP_S = 60.0
"""A machine that slept wakes its sleepers late by this at most: the event loop does not count sleep."""


class Clock(Protocol):
    """Tells the time and wakes sleepers by it."""

    def now_s(self) -> float:
        """Seconds since the epoch, whole microseconds."""

    async def sleep_until(self, time_s: float) -> None:
        """Return when `now_s()` has reached `time_s`."""


class SteadyClock:
    """The machine's clock when this process began, and what has elapsed since: setting the clock does not move it."""

    def now_s(self) -> float:
        """Seconds since the epoch, whole microseconds."""
        return whole_microseconds(steady_s())

    async def sleep_until(self, time_s: float) -> None:
        """Return when `now_s()` is `time_s` or later."""
        while (left_s := time_s - steady_s()) > 0:
            await asyncio.sleep(min(left_s + 1e-6, _LONGEST_NAP_S))


class ManualClock:
    """A clock that stands still until it is advanced: tests hold time in their hands."""

    def __init__(self, now_s: float = 1_700_000_000.0) -> None:
        self._now_s = now_s
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._naps = 0

    def now_s(self) -> float:
        """The time it was set to."""
        return self._now_s

    async def sleep_until(self, time_s: float) -> None:
        """Return when the clock was advanced to `time_s` or later."""
        if time_s <= self._now_s:
            return
        waker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._naps += 1
        heapq.heappush(self._sleepers, (time_s, self._naps, waker))
        await waker

    def advance(self, seconds: float) -> None:
        """Let time pass and wake every sleeper that is due."""
        self._now_s = whole_microseconds(self._now_s + seconds)
        while self._sleepers and self._sleepers[0][0] <= self._now_s:
            waker = heapq.heappop(self._sleepers)[2]
            if not waker.done():
                waker.set_result(None)
