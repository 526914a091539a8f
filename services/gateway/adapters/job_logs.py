"""A job's output, read from its partition of the logs topic."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from libs.bus import codec
from libs.bus.batches import batches, kept_before
from libs.bus.partitioner import partition_index
from libs.bus.port import Bus, Message, Partition
from libs.contracts.agent import JobLogged
from libs.contracts.base import Topic
from libs.contracts.wire import Undecodable
from libs.runtime.log import fields

log = logging.getLogger(__name__)

_BATCH = 1000
_REMEMBERED = 10_000


@dataclass(frozen=True)
class LineFilter:
    """Which lines; an empty filter is all of them."""

    attempt: int | None = None
    rank: int | None = None
    node_id: str | None = None
    stream: str | None = None
    since_s: float | None = None


@dataclass(frozen=True)
class Chunk:
    """The wanted lines of one record."""

    offset: int
    lines: list[dict[str, Any]]


class JobLogs:
    """Reads lines; each record once, although agents may append one twice.

    Args:
        bus: the cell's log.
        job_id: the job that has written the lines.
        wanted: which of them.
    """

    def __init__(self, bus: Bus, job_id: str, wanted: LineFilter) -> None:
        self._bus, self._job_id, self._wanted = bus, job_id, wanted
        self._seen: dict[str, None] = {}

    async def _partition(self) -> Partition:
        partitions: Sequence[Partition] = await self._bus.partitions(Topic.LOGS)
        return partitions[partition_index(self._job_id, len(partitions))]

    async def tail(self, lines: int | None) -> tuple[list[dict[str, Any]], int]:
        """The last lines up to now (None: all that are kept).

        Returns:
            The lines, and the offset to follow from.

        Raises:
            BusError: records that the log says it has do not come.
        """
        partition = await self._partition()
        end = await self._bus.end_offset(partition)
        kept: deque[dict[str, Any]] = deque(maxlen=lines)
        async for message in kept_before(self._bus, partition, end):
            if chunk := self._chunk(message):
                kept.extend(chunk.lines)
        return list(kept), end

    async def follow(self, start: int, heartbeat_s: float, ended: Callable[[], Any]) -> AsyncIterator[Chunk | None]:
        """Lines from an offset of the job's partition on, until the job has ended and all its lines were read.

        Args:
            start: the offset; 0: the oldest that is kept.
            ended: awaited now and then: whether the job has ended.

        Yields:
            The lines of one record; None when there was nothing for `heartbeat_s`.

        Raises:
            BusError: records that the log says it has do not come.
        """
        partition = await self._partition()
        position = start or await self._bus.begin_offset(partition)
        reader = await self._bus.reader({partition: start})
        try:
            while not await ended():
                messages = await reader.next_batch(_BATCH, heartbeat_s)
                for message in messages:
                    position = message.offset + 1
                    if chunk := self._chunk(message):
                        yield chunk
                if not messages:
                    yield None
            end = await self._bus.end_offset(partition)
            async with aclosing(batches(reader, partition, position, end)) as found:
                async for messages in found:
                    for message in messages:
                        if chunk := self._chunk(message):
                            yield chunk
        finally:
            await reader.close()

    def _chunk(self, message: Message) -> Chunk | None:
        if message.key != self._job_id:
            return None
        try:
            envelope = codec.record(message).envelope
        except Undecodable as error:
            log.warning("lines cannot be read", extra=fields(error=error))
            return None
        event = envelope.event
        if not isinstance(event, JobLogged) or envelope.id in self._seen:
            return None
        self._seen[envelope.id] = None
        if len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]
        lines = self._lines(event, message.offset)
        return Chunk(message.offset, lines) if lines else None

    def _lines(self, event: JobLogged, offset: int) -> list[dict[str, Any]]:
        wanted = self._wanted
        if wanted.attempt not in (None, event.attempt) or wanted.node_id not in (None, event.node_id):
            return []
        return [
            {
                "offset": offset,
                "time_s": line.time_s,
                "attempt": event.attempt,
                "node_id": event.node_id,
                "rank": line.rank,
                "stream": line.stream,
                "text": line.text,
            }
            for line in event.lines
            if wanted.rank in (None, line.rank)
            and wanted.stream in (None, line.stream)
            and (wanted.since_s is None or line.time_s >= wanted.since_s)
        ]
