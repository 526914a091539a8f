"""One cell's log on Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from aiokafka import AIOKafkaProducer, TopicPartition

from libs.bus.kafka import removal, topics
from libs.bus.kafka.connection import REQUEST_BYTES, Connection
from libs.bus.kafka.ends import Ends
from libs.bus.kafka.errors import reaching_kafka
from libs.bus.kafka.positions import committed
from libs.bus.kafka.reader import KafkaReader
from libs.bus.kafka.session import KafkaSession
from libs.bus.limits import check_before, check_sizes
from libs.bus.naming import no_topic
from libs.bus.partitioner import partition_index
from libs.bus.port import Archived, BusError, Outgoing, Partition, Position, TopicLayout
from libs.contracts.base import Topic


class KafkaBus:
    """See the port's `Bus`."""

    def __init__(self, connection: Connection, cell: str) -> None:
        self.cell = cell
        self._connection = connection
        self._counts: dict[Topic, int] = {}
        self._producer: AIOKafkaProducer | None = None
        self._ends: Ends | None = None
        self._opened: set[KafkaSession | KafkaReader] = set()
        self._starting = asyncio.Lock()
        self._seeking = asyncio.Lock()

    @classmethod
    async def connect(cls, url: str, cell: str) -> KafkaBus:
        """A bus that connects when it is first used.

        Raises:
            BusError: the URL cannot be understood.
        """
        return cls(Connection.parse(url), cell)

    async def create_topics(self, layout: TopicLayout) -> None:
        """See the port."""
        await topics.create(self._connection, self.cell, layout)

    async def partitions(self, topic: Topic) -> list[Partition]:
        """See the port."""
        return [Partition(topic, index) for index in range((await self._partition_counts())[topic])]

    async def open_session(self, name: str) -> KafkaSession:
        """See the port."""
        counts = await self._partition_counts()
        for broken in [old for old in self._opened if isinstance(old, KafkaSession) and old.broken]:
            await broken.close()
        session = KafkaSession(self._connection, self.cell, name, counts, self._opened.discard)
        await session.open()
        self._opened.add(session)
        return session

    async def committed(self, session: str, partition: Partition) -> Position:
        """How far a session has come, without taking it over; `Position(0)` when there is none."""
        return await committed(self._connection, f"{self.cell}.{session}", self._place(partition))

    async def reader(self, starts: Mapping[Partition, int]) -> KafkaReader:
        """See the port."""
        await self._partition_counts()
        reader = KafkaReader(self._connection, self.cell, starts, self._opened.discard)
        await reader.open()
        self._opened.add(reader)
        return reader

    async def append(self, outputs: Sequence[Outgoing]) -> None:
        """See the port."""
        check_sizes(outputs)
        counts = await self._partition_counts()
        async with reaching_kafka(f"append to {self.cell}"):
            producer = await self._plain_producer()
            sent = [
                await producer.send(
                    f"{self.cell}.{output.topic.value}",
                    value=output.value,
                    key=output.key.encode(),
                    headers=output.headers,
                    partition=partition_index(output.key, counts[output.topic]),
                )
                for output in outputs
            ]
            await asyncio.gather(*sent)

    async def end_offset(self, partition: Partition) -> int:
        """See the port."""
        place = self._place(partition)
        async with self._seeking, reaching_kafka(f"find the end of {place.topic}"):
            return await (await self._found_ends()).after_last_message(place)

    async def now_s(self) -> float | None:
        """See the port's `TellsTime`: when the last heartbeat or sample came; a broker tells no other time."""
        places = [self._place(partition) for partition in await self.partitions(Topic.TELEMETRY)]
        async with self._seeking, reaching_kafka(f"read the end of {self.cell}.{Topic.TELEMETRY}"):
            return await (await self._found_ends()).newest_s(places)

    async def _found_ends(self) -> Ends:
        if self._ends is None:
            self._ends = await Ends.open(self._connection)
        return self._ends

    async def begin_offset(self, partition: Partition) -> int:
        """See the port."""
        await self._check_exists(partition)
        return await removal.begin_offset(self._connection, self._place(partition))

    async def archived(self) -> Archived | None:
        """See the port."""
        return await removal.last_note(self._connection, self.cell)

    async def give_back(self, befores: Mapping[Partition, int], archived: Archived) -> None:
        """See the port."""
        for partition, before in befores.items():
            await self._check_exists(partition)
            check_before(partition, before, await self.end_offset(partition))
        await removal.write_note(self._connection, self.cell, archived)
        await removal.delete_before(self._connection, {self._place(p): before for p, before in befores.items()})

    async def close(self) -> None:
        """See the port."""
        for opened in list(self._opened):
            await opened.close()
        producer, ends = self._producer, self._ends
        self._producer = self._ends = None
        if producer is not None:
            await producer.stop()
        if ends is not None:
            await ends.close()

    def _place(self, partition: Partition) -> TopicPartition:
        return TopicPartition(f"{self.cell}.{partition.topic.value}", partition.index)

    async def _check_exists(self, partition: Partition) -> None:
        count = (await self._partition_counts())[partition.topic]
        if not 0 <= partition.index < count:
            place = f"{self.cell}.{partition.topic}"
            raise BusError(f"topic {place} has partitions 0 to {count - 1}, not {partition.index}")

    async def _partition_counts(self) -> dict[Topic, int]:
        """{topic: partitions}, read once: a cell's topics are not cut anew.

        Raises:
            BusError: a topic of the cell does not exist.
        """
        async with self._starting:
            if not self._counts:
                self._counts = await self._read_partition_counts()
            return self._counts

    async def _read_partition_counts(self) -> dict[Topic, int]:
        counts = await topics.partition_counts(self._connection, self.cell)
        missing = [topic for topic in Topic if topic not in counts]
        if missing:
            raise no_topic(self.cell, missing[0], await topics.cells(self._connection))
        return counts

    async def _plain_producer(self) -> AIOKafkaProducer:
        async with self._starting:
            if self._producer is None:
                producer = AIOKafkaProducer(
                    enable_idempotence=True, max_request_size=REQUEST_BYTES, linger_ms=5, **self._connection.client
                )
                try:
                    await producer.start()
                except BaseException:
                    await producer.stop()
                    raise
                self._producer = producer
            return self._producer
