"""A log that is slow to answer, as a busy broker is: a short wait ends without what is there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from libs.bus.port import Bus, Message, Partition, Reader
from libs.testing.passing import PassingBus


class LateBus(PassingBus):
    """Passes everything on; a new reader gets nothing before it has waited for `takes_s`, all its waits together.

    No time passes: what counts is how long it would have waited. With infinite seconds no reader gets anything.
    """

    def __init__(self, bus: Bus, takes_s: float) -> None:
        super().__init__(bus)
        self.takes_s = takes_s

    async def reader(self, starts: Mapping[Partition, int]) -> Reader:
        """As the bus, but late."""
        return _Reader(self, await self.bus.reader(starts))


class _Reader:
    def __init__(self, bus: LateBus, reader: Reader) -> None:
        self._bus, self._reader = bus, reader
        self._waited_s = 0.0

    async def next_batch(self, max_messages: int, timeout_s: float) -> list[Message]:
        self._waited_s += timeout_s
        if self._waited_s < self._bus.takes_s:
            await asyncio.sleep(0)
            return []
        return await self._reader.next_batch(max_messages, timeout_s)

    async def close(self) -> None:
        await self._reader.close()
