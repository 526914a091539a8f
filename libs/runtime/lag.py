"""How far a shell is behind the log's end, looked up beside its loop: the log may take its time to answer."""

from __future__ import annotations

import asyncio

from libs.bus.port import Bus, BusUnavailable
from libs.runtime.recovery import CONTROL
from libs.runtime.stats import Stats

LOOK_EVERY_S = 5.0


class Lag:
    """Keeps `Stats.lag_records`."""

    def __init__(self, bus: Bus, stats: Stats) -> None:
        self._bus, self._stats = bus, stats
        self._looking: asyncio.Task[None] | None = None
        self._looked_at = 0.0

    def turn(self, quiet: bool) -> None:
        """The loop has turned; `quiet`: its last read found nothing."""
        if quiet:
            self._stats.lag_records = 0
        elif self._stats.beat - self._looked_at >= LOOK_EVERY_S and (self._looking is None or self._looking.done()):
            self._looked_at = self._stats.beat
            self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        try:
            end = await self._bus.end_offset(CONTROL)
        except BusUnavailable:
            return
        self._stats.lag_records = max(0, end - self._stats.next_offset)

    async def close(self) -> None:
        """Stop looking."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
