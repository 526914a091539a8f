"""Reads committed messages with a consumer that belongs to no group."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from libs.bus.kafka.connection import REQUEST_BYTES, Connection
from libs.bus.kafka.errors import reaching_kafka
from libs.bus.port import BusError, Message, OffsetLost, Partition
from libs.contracts.base import Topic

PROBE_AFTER_S = 0.2
PROBE_TIMEOUT_S = 5.0


def consumer(
    connection: Connection, *, fetch_wait_ms: int = 500, isolation_level: str = "read_committed"
) -> AIOKafkaConsumer:
    """A consumer that sees no open or aborted transaction, unless it is told to, and never moves by itself.

    Args:
        fetch_wait_ms: how long the broker holds back an answer that would be empty.
    """
    return AIOKafkaConsumer(
        fetch_max_wait_ms=fetch_wait_ms,
        isolation_level=isolation_level,
        auto_offset_reset="none",
        enable_auto_commit=False,
        max_partition_fetch_bytes=REQUEST_BYTES,
        fetch_max_bytes=4 * REQUEST_BYTES,
        **connection.client,
    )


async def stop(started: AIOKafkaConsumer) -> None:
    """Disconnect."""
    with suppress(asyncio.CancelledError):  # raised by a consumer that is stopped before its first poll
        await started.stop()


class KafkaReader:
    """See the port's `Reader`."""

    def __init__(
        self,
        connection: Connection,
        cell: str,
        starts: Mapping[Partition, int],
        on_close: Callable[[KafkaReader], None],
    ) -> None:
        self._cell = cell
        self._closed = False
        self._on_close = on_close
        self._starts = {TopicPartition(f"{cell}.{p.topic.value}", p.index): o for p, o in starts.items()}
        self._consumer = consumer(connection)

    async def open(self) -> None:
        """Connect and go to the start offsets.

        Raises:
            BusUnavailable: Kafka cannot be reached.
        """
        async with reaching_kafka(f"read the log of {self._cell}"):
            try:
                await self._consumer.start()
                self._consumer.assign(list(self._starts))
                for place, offset in self._starts.items():
                    if offset > 0:
                        self._consumer.seek(place, offset)
                    else:  # what is left of it
                        await self._consumer.seek_to_beginning(place)
            except BaseException:
                await self._consumer.stop()
                raise

    async def next_batch(self, max_messages: int, timeout_s: float) -> list[Message]:
        """See the port."""
        if self._closed:
            raise BusError("the reader is closed")
        began = time.monotonic()
        async with reaching_kafka(f"read the log of {self._cell}"):
            try:
                found = await self._consumer.getmany(timeout_ms=int(timeout_s * 1000), max_records=max_messages)
            except OffsetOutOfRangeError as error:
                raise await self._lost(error) from error
            if not found and time.monotonic() - began >= PROBE_AFTER_S:
                await self._probe()
        return [self._message(place, record) for place, records in found.items() for record in records]

    async def _probe(self) -> None:
        """Silence may mean that nothing was written or that no broker answers: the client retries for ever. Ask."""
        some = next(iter(self._starts))
        await asyncio.wait_for(self._consumer.end_offsets([some]), PROBE_TIMEOUT_S)

    async def _lost(self, error: OffsetOutOfRangeError) -> OffsetLost:
        asked: dict[TopicPartition, int] = error.args[0]
        begins = await self._consumer.beginning_offsets(list(asked))
        message = "; ".join(f"{p.topic}/{p.partition} begins at {begins[p]}, asked for {o}" for p, o in asked.items())
        return OffsetLost(message, {self._partition(place): begin for place, begin in begins.items()})

    def _partition(self, place: TopicPartition) -> Partition:
        return Partition(Topic(place.topic.removeprefix(f"{self._cell}.")), place.partition)

    def _message(self, place: TopicPartition, record: ConsumerRecord) -> Message:
        return Message(
            partition=self._partition(place),
            offset=record.offset,
            key=(record.key or b"").decode(errors="replace"),
            headers=list(record.headers),
            value=record.value or b"",
            appended_at_s=record.timestamp / 1000,
        )

    async def close(self) -> None:
        """See the port."""
        if self._closed:
            return
        self._closed = True
        self._on_close(self)
        await stop(self._consumer)
