"""A log whose readers answer late, as those of a busy broker do: a short wait ends without what is there."""

from __future__ import annotations

from collections.abc import Mapping

from libs.bus.port import Bus, Message, Partition, Reader
from libs.testing.passing import PassingBus


class LateBus(PassingBus):
    """Passes everything on; a new reader that waits less than `takes_s` for its first messages gets none.

    No time passes: it is the wait that counts. With infinite seconds no reader gets any.
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
        self._has_begun = False

    async def next_batch(self, max_messages: int, timeout_s: float) -> list[Message]:
        if not self._has_begun and timeout_s < self._bus.takes_s:
            return []
        self._has_begun = True
        return await self._reader.next_batch(max_messages, timeout_s)

    async def close(self) -> None:
        await self._reader.close()
