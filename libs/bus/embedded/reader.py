"""Reads on, and waits for more. Where a look has found all that there was, the next one waits for a ring."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from libs.bus.embedded.doorbell import Doorbell, Waiter
from libs.bus.embedded.lane import Lane
from libs.bus.embedded.lookup import BATCH_BYTES, Lookup
from libs.bus.port import BusError, Message, Partition

LOOK_ANYWAY_S = 0.5
"""How long a reader trusts that it would have been rung."""
LOOK_DEAF_S = 0.05
"""How long it waits where it cannot be rung."""


class EmbeddedReader:
    """See the port's `Reader`."""

    def __init__(self, places: Mapping[Partition, tuple[int, int]], reading: Lane[Lookup], doorbell: Doorbell) -> None:
        """Start at `places`: {partition: (its id, offset)}."""
        self._next = dict(places.values())
        self._ids = {partition: partition_id for partition, (partition_id, _) in places.items()}
        self._reading, self._doorbell = reading, doorbell
        self._waiter = Waiter(self._next)
        self._closed = False
        self._at_end = False
        """The last look has found all that there was: the next one waits for a ring, or for its time."""
        doorbell.add(self._waiter)

    async def next_batch(self, max_messages: int, timeout_s: float) -> list[Message]:
        """See the port."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        waits = self._at_end and self._doorbell.hears
        while True:
            if waits and (left_s := deadline - loop.time()) > 0:
                await self._waiter.wait(min(left_s, LOOK_ANYWAY_S if self._doorbell.hears else LOOK_DEAF_S))
            if self._closed:
                raise BusError("the reader is closed")
            self._waiter.expect()
            self._at_end = False  # also where the look is cancelled
            found = await self._look(max_messages)
            self._at_end = len(found) < max_messages and sum(len(each.value) for each in found) < BATCH_BYTES
            if found or deadline <= loop.time():
                return self._taken(found)
            waits = True

    async def _look(self, max_messages: int) -> list[Message]:
        starts = dict(self._next)
        return await self._reading.run(lambda lookup: lookup.messages(starts, max_messages))

    def _taken(self, messages: list[Message]) -> list[Message]:
        """Go on after these; their partitions get to the end of the line."""
        ends = {message.partition: message.offset + 1 for message in messages}
        for partition, offset in ends.items():
            del self._next[self._ids[partition]]
            self._next[self._ids[partition]] = offset
        return messages

    async def close(self) -> None:
        """See the port."""
        self._closed = True
        self._doorbell.remove(self._waiter)
        self._waiter.ring()
