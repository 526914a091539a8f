"""Where a partition ends, in messages: the broker counts transaction markers as offsets too."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer, TopicPartition

from libs.bus.kafka.connection import Connection
from libs.bus.kafka.reader import consumer, stop

SEEK_WAIT_MS = 10
"""What is looked for at the end of a partition is there already: no use in waiting for more."""
SETTLE_S = 1.0
"""How long to wait for transactions that are just ending; those of dead writers take longer."""
SETTLE_PAUSE_S = 0.005


class Ends:
    """Finds the ends of partitions. One call at a time."""

    def __init__(self, committed: AIOKafkaConsumer, everything: AIOKafkaConsumer) -> None:
        """Use `open`."""
        self._committed, self._everything = committed, everything

    @classmethod
    async def open(cls, connection: Connection) -> Ends:
        """Connect."""
        committed = consumer(connection, fetch_wait_ms=SEEK_WAIT_MS)
        everything = consumer(connection, isolation_level="read_uncommitted")
        ends = cls(committed, everything)
        try:
            await committed.start()
            await everything.start()
        except BaseException:
            await ends.close()
            raise
        return ends

    async def after_last_message(self, place: TopicPartition) -> int:
        """The offset after the last committed message, 0 when there is none.

        The broker's end (of what is committed) may lie behind markers, so the last message is looked for
        backwards, in windows of doubling size.
        """
        end = await self._settled_end(place)
        begin: int = (await self._committed.beginning_offsets([place]))[place]
        window = 4
        while end > begin:
            start = max(begin, end - window)
            last = await self._last_between(place, start, end)
            if last is not None:
                return last + 1
            if start == begin:
                break
            window *= 4
        return begin

    async def newest_s(self, places: Sequence[TopicPartition]) -> float | None:
        """When the newest of the last records of partitions was taken, seconds since the epoch; None: there is none.

        Of partitions without transactions: the last offset is that of a record.
        """
        reading, begins = self._everything, await self._everything.beginning_offsets(list(places))
        ends = await reading.end_offsets(list(places))
        waiting = {place for place in places if ends[place] > begins[place]}
        if not waiting:
            return None
        reading.assign(list(waiting))
        newest_ms = 0
        try:
            for place in waiting:
                reading.seek(place, ends[place] - 1)
            deadline = time.monotonic() + SETTLE_S
            while waiting and time.monotonic() < deadline:
                for place, records in (await reading.getmany(timeout_ms=100)).items():
                    newest_ms = max(newest_ms, records[-1].timestamp)
                    waiting.discard(place)
        finally:
            reading.unsubscribe()
        return newest_ms / 1000 if newest_ms else None

    async def _settled_end(self, place: TopicPartition) -> int:
        """The broker's end of what is committed, not before what was committed until now.

        A commit returns before the broker has written its markers, and until then no reader sees it.
        """
        deadline = time.monotonic() + SETTLE_S
        written: int = (await self._everything.end_offsets([place]))[place]
        while True:
            end: int = (await self._committed.end_offsets([place]))[place]
            if end >= written or time.monotonic() > deadline:
                return end
            await asyncio.sleep(SETTLE_PAUSE_S)

    async def _last_between(self, place: TopicPartition, start: int, end: int) -> int | None:
        self._committed.assign([place])
        self._committed.seek(place, start)
        last: int | None = None
        try:
            while await self._committed.position(place) < end:
                for records in (await self._committed.getmany(timeout_ms=100)).values():
                    last = records[-1].offset
        finally:
            self._committed.pause(place)  # else it would go on fetching, a hundred times a second
        return last

    async def close(self) -> None:
        """Disconnect."""
        await stop(self._committed)
        await stop(self._everything)
