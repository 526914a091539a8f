"""The newest dead letters of the cell, read along for all requests: the topic itself is on no read model."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from libs.bus.batches import SILENCE_S, first_from
from libs.bus.port import Bus, BusUnavailable, Message, OffsetLost, Outgoing
from libs.contracts.base import Topic
from libs.runtime.clock import SteadyClock
from libs.runtime.deadletter import Letter, letter
from libs.runtime.tail import Tail, begins, ends

KEPT = 100
"""Letters that are kept; older ones stay on the topic and are only counted."""
_BATCH = 500


class DeadLetters:
    """Reads the topic from its beginning, then along with it.

    Args:
        bus: the cell's log.
        stop: set it to end `run`.
    """

    def __init__(self, bus: Bus, stop: asyncio.Event) -> None:
        self._bus, self._stop = bus, stop
        self._kept: OrderedDict[tuple[str, str], Letter] = OrderedDict()
        self.total = 0
        """Letters on the topic, those that are not kept included."""
        self.caught_up = asyncio.Event()
        """What stood on the topic at the start has been read."""

    def newest(self, limit: int) -> list[Letter]:
        """At most `limit` letters, the newest first."""
        return list(reversed(self._kept.values()))[:limit]

    async def message(self, offset: int) -> Message | None:
        """The letter at an offset of the topic, whole; None: there is none.

        Raises:
            BusUnavailable: the log cannot be reached now.
        """
        [(partition, end)] = (await ends(self._bus, Topic.DEADLETTER, self._stop)).items()
        if not 0 <= offset < end:
            return None
        try:
            message = await first_from(self._bus, partition, offset)
        except OffsetLost:
            return None
        if message is None:
            raise BusUnavailable(f"nothing came for {SILENCE_S:g} s, expected the letter at offset {offset}")
        return message if message.offset == offset else None

    async def again(self, record: Outgoing) -> None:
        """Append the record of a letter once more.

        Raises:
            BusUnavailable: the log cannot be reached, or has no room.
        """
        await self._bus.append([record])

    async def run(self) -> None:
        """Read until told to stop.

        Raises:
            StopRequested: told to stop while the log could not be reached.
        """
        at_start = await ends(self._bus, Topic.DEADLETTER, self._stop)
        unread = {partition for partition, end in at_start.items() if end > 0}
        tail = Tail(self._bus, dict.fromkeys(at_start, 0), _BATCH, SteadyClock(), self._stop)
        try:
            while not self._stop.is_set():
                if not unread:
                    self.caught_up.set()
                messages = await tail.next()
                for message in messages or ():
                    self._keep(message)
                    if message.offset + 1 >= at_start[message.partition]:
                        unread.discard(message.partition)
                if messages == []:  # what has not come comes late, or was removed from the topic
                    kept_from = await begins(self._bus, unread, self._stop)
                    unread = {partition for partition, begin in kept_from.items() if begin < at_start[partition]}
        finally:
            await tail.close()

    def _keep(self, message: Message) -> None:
        found = letter(message)
        origin = found.service, found.record
        if origin in self._kept:  # put aside twice, by a service after the log had forgotten its position
            return
        self.total += 1
        self._kept[origin] = found
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
