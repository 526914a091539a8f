"""A transactional producer with the positions of one consumer group.

A session's name is both its transactional id and its group. The group never has members, so positions are
committed for it directly, in the transaction. Starting a producer of the same transactional id fences the
older one and waits until its unfinished transaction is undone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.structs import OffsetAndMetadata, RecordMetadata

from libs.bus.kafka.connection import REQUEST_BYTES, SESSION_BACKOFF_MS, TRANSACTION_TIMEOUT_MS, Connection
from libs.bus.kafka.errors import FENCED, UNREACHABLE, reaching_kafka
from libs.bus.kafka.positions import committed
from libs.bus.limits import check_positions, check_sizes
from libs.bus.partitioner import partition_index
from libs.bus.port import BusError, Fenced, OutcomeUnknown, Outgoing, Partition, Position
from libs.contracts.base import Topic

COMMIT_TIMEOUT_S = 10.0


class KafkaSession:
    """See the port's `Session`."""

    def __init__(
        self,
        connection: Connection,
        cell: str,
        name: str,
        partitions: Mapping[Topic, int],
        on_close: Callable[[KafkaSession], None],
    ) -> None:
        self._connection, self._cell, self._partitions = connection, cell, partitions
        self._name = f"{cell}.{name}"
        self._producer = AIOKafkaProducer(
            transactional_id=self._name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            max_request_size=REQUEST_BYTES,
            retry_backoff_ms=SESSION_BACKOFF_MS,
            **connection.client,
        )
        self._moved: dict[Partition, Position] = {}
        """What it has committed itself; the group's coordinator knows of it when the commit's markers are written."""
        self._failed: BaseException | None = None
        self._closed = False
        self._on_close = on_close

    @property
    def broken(self) -> bool:
        """It can never commit again."""
        return self._failed is not None

    async def open(self) -> None:
        """Take over the name.

        Raises:
            BusUnavailable: Kafka cannot be reached.
        """
        async with reaching_kafka(f"open session {self._name}"):
            try:
                await asyncio.wait_for(self._producer.start(), COMMIT_TIMEOUT_S)
            except BaseException:
                await self._producer.stop()
                raise

    async def position(self, partition: Partition) -> Position:
        """See the port."""
        if partition in self._moved:
            return self._moved[partition]
        return await committed(self._connection, self._name, self._place(partition))

    async def commit(
        self, outputs: Sequence[Outgoing], positions: Mapping[Partition, Position] | None = None
    ) -> list[int]:
        """See the port."""
        moves = dict(positions or {})
        check_sizes(outputs)
        check_positions(moves)
        if self._closed:
            raise BusError(f"session {self._name} is closed")
        if isinstance(self._failed, FENCED):
            raise Fenced(f"session {self._name}: a newer session has taken over")
        if self._failed is not None:
            raise OutcomeUnknown(f"session {self._name} broke earlier and must be opened anew") from self._failed
        try:
            offsets = await asyncio.wait_for(self._transaction(outputs, moves), COMMIT_TIMEOUT_S)
            self._moved.update(moves)
            return offsets
        except FENCED as error:
            self._failed = error
            raise Fenced(f"session {self._name}: a newer session has taken over") from error
        except UNREACHABLE as error:
            self._failed = error
            raise OutcomeUnknown(f"session {self._name}: commit broke off: {error!r}") from error
        except asyncio.CancelledError as error:
            self._failed = error
            raise

    async def _transaction(self, outputs: Sequence[Outgoing], positions: Mapping[Partition, Position]) -> list[int]:
        if not outputs and not positions:
            return []
        await self._producer.begin_transaction()
        sent = [await self._send(output) for output in outputs]
        results = await asyncio.gather(*sent, return_exceptions=True)  # all of them: none is left unretrieved
        offsets = [_offset(result) for result in results]
        if positions:
            moved = {self._place(p): OffsetAndMetadata(at.next_offset, at.metadata) for p, at in positions.items()}
            await self._producer.send_offsets_to_transaction(moved, self._name)
        await self._producer.commit_transaction()
        return offsets

    async def _send(self, output: Outgoing) -> asyncio.Future[RecordMetadata]:
        sent: asyncio.Future[RecordMetadata] = await self._producer.send(
            f"{self._cell}.{output.topic.value}",
            value=output.value,
            key=output.key.encode(),
            headers=output.headers,
            partition=partition_index(output.key, self._partitions[output.topic]),
        )
        return sent

    async def close(self) -> None:
        """See the port."""
        if self._closed:
            return
        self._closed = True
        self._on_close(self)
        producer = self._producer
        if self._failed is None:
            await producer.stop()
            return
        # A broken producer may wait for its batches until they time out: leave it at most a moment.
        closing = asyncio.ensure_future(producer.stop())
        await asyncio.wait([closing], timeout=1.0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)

    def _place(self, partition: Partition) -> TopicPartition:
        return TopicPartition(f"{self._cell}.{partition.topic.value}", partition.index)


def _offset(result: RecordMetadata | BaseException) -> int:
    if isinstance(result, BaseException):
        raise result
    return int(result.offset)
