"""Messages of some partitions, read on through outages: for shells that are not the shell of a core."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping

from libs.bus.port import Bus, BusUnavailable, Message, OffsetLost, Partition
from libs.contracts.base import Topic
from libs.inspect.archive import whole_reader
from libs.runtime.clock import Clock
from libs.runtime.inbox import Inbox
from libs.runtime.log import fields
from libs.runtime.patience import Patience

log = logging.getLogger(__name__)


class Tail:
    """Waits while the log is away, and starts at what is left when short-lived messages are gone."""

    def __init__(
        self, bus: Bus, starts: Mapping[Partition, int], batch: int, clock: Clock, stop: asyncio.Event
    ) -> None:
        """Read from `starts` on, at most `batch` messages at a time."""
        self._bus, self._starts, self._batch = bus, dict(starts), batch
        self._clock, self._stop = clock, stop
        self._patience = Patience(stop)
        self._inbox: Inbox | None = None
        self.interruptions = 0
        """How often the log could not be reached or read since the start."""

    async def next(self, wake_at_s: float | None = None) -> list[Message] | None:
        """The next messages; empty after a quiet second; None when woken by time, an interruption or a stop.

        Raises:
            StopRequested: asked to stop while the log could not be reached.
        """
        if self._inbox is None:
            self._inbox = await self._open()
        try:
            messages = await self._inbox.next(wake_at_s)
        except BusUnavailable as error:
            self.interruptions += 1
            await self._patience.wait("read", error)
            return None
        except OffsetLost as error:
            self.interruptions += 1
            log.warning("messages are gone: going on with the oldest that is left", extra=fields(error=error))
            await self._inbox.close()
            self._inbox = None
            self._starts.update(dict.fromkeys(error.begins, 0))
            return None
        if messages is not None:
            self._patience.over()
            self._starts.update((message.partition, message.offset + 1) for message in messages)
        return messages

    async def _open(self) -> Inbox:
        reader = await self._patience.outlast(lambda: whole_reader(self._bus, self._starts), "open a reader")
        return Inbox(reader, self._batch, self._clock, self._stop)

    async def close(self) -> None:
        """Give the reader back."""
        if self._inbox is not None:
            await self._inbox.close()


async def all_partitions(bus: Bus, topic: Topic, stop: asyncio.Event) -> list[Partition]:
    """The partitions of a topic; waits while the log is away.

    Raises:
        StopRequested: asked to stop meanwhile.
    """
    return await Patience(stop).outlast(lambda: bus.partitions(topic), f"read the partitions of {topic.value}")


async def ends(bus: Bus, topic: Topic, stop: asyncio.Event) -> dict[Partition, int]:
    """Where a topic's partitions end now; waits while the log is away.

    Raises:
        StopRequested: asked to stop meanwhile.
    """

    async def look() -> dict[Partition, int]:
        return {partition: await bus.end_offset(partition) for partition in await bus.partitions(topic)}

    return await Patience(stop).outlast(look, f"read where {topic.value} ends")


async def begins(bus: Bus, partitions: Iterable[Partition], stop: asyncio.Event) -> dict[Partition, int]:
    """The oldest offsets that partitions keep now; waits while the log is away.

    Raises:
        StopRequested: asked to stop meanwhile.
    """

    async def look() -> dict[Partition, int]:
        return {partition: await bus.begin_offset(partition) for partition in partitions}

    return await Patience(stop).outlast(look, "read where partitions begin")
