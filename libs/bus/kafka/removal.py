"""Removes the oldest records of partitions, and keeps the note that says where they are.

Kafka has no place for a note beside its topics, and forgets the positions of groups, so a cell from which records
were removed gets one more topic, `<cell>.archive`. It belongs to this adapter: no service reads it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import RecordsToDelete

from libs.bus.kafka.connection import Connection
from libs.bus.kafka.errors import reaching_kafka
from libs.bus.kafka.reader import consumer, stop
from libs.bus.kafka.topic_settings import FOR_EVER, stated
from libs.bus.kafka.topics import admin_client, create_one
from libs.bus.port import Archived, BusError

NOTES = "archive"
ANSWER_TIMEOUT_S = 10.0


async def begin_offset(connection: Connection, place: TopicPartition) -> int:
    """Offset of the oldest record that is kept.

    Raises:
        BusUnavailable: Kafka cannot be reached.
    """
    async with reaching_kafka(f"find the beginning of {place.topic}"):
        looking = consumer(connection)
        try:
            await looking.start()
            begin: int = (await looking.beginning_offsets([place]))[place]
            return begin
        finally:
            await stop(looking)


async def last_note(connection: Connection, cell: str) -> Archived | None:
    """The latest note; None when there is none.

    Raises:
        BusUnavailable: Kafka cannot be reached.
        BusError: the note cannot be read.
    """
    place = TopicPartition(f"{cell}.{NOTES}", 0)
    async with reaching_kafka(f"read what was archived of {cell}"):
        if not await _exists(connection, place.topic):
            return None
        looking = consumer(connection)
        try:
            await looking.start()
            value = await _last_value(looking, place)
        finally:
            await stop(looking)
    if value is None:
        return None
    try:
        return msgspec.json.decode(value, type=Archived)
    except msgspec.DecodeError as error:
        raise BusError(f"topic {place.topic}: {error}; expected a note of `sanjaya archive`") from None


async def write_note(connection: Connection, cell: str, archived: Archived) -> None:
    """Append a note; all replicas have it when this returns.

    Raises:
        BusUnavailable: Kafka cannot be reached.
    """
    topic = f"{cell}.{NOTES}"
    async with reaching_kafka(f"note what was archived of {cell}"):
        async with admin_client(connection) as admin:
            await create_one(admin, connection, topic, 1, stated(FOR_EVER, connection.replication_factor))
        producer = AIOKafkaProducer(enable_idempotence=True, **connection.client)
        try:
            await producer.start()
            await producer.send_and_wait(topic, msgspec.json.encode(archived), partition=0)
        finally:
            await producer.stop()


async def delete_before(connection: Connection, befores: Mapping[TopicPartition, int]) -> None:
    """Delete the records before these offsets.

    Raises:
        BusUnavailable: Kafka cannot be reached; some may be deleted.
    """
    async with reaching_kafka("delete archived records"), admin_client(connection) as admin:
        await admin.delete_records({place: RecordsToDelete(before) for place, before in befores.items()})


async def _exists(connection: Connection, topic: str) -> bool:
    # asked by name, a broker may make the topic, and not with the settings that keep a note
    async with admin_client(connection) as admin:
        return topic in await admin.list_topics()


async def _last_value(looking: AIOKafkaConsumer, place: TopicPartition) -> bytes | None:
    """The value of the partition's last record; None while it is empty. Notes are appended outside of transactions."""
    end: int = (await looking.end_offsets([place]))[place]
    if end == 0:
        return None
    looking.assign([place])
    looking.seek(place, end - 1)
    record = await asyncio.wait_for(looking.getone(place), ANSWER_TIMEOUT_S)
    value: bytes = record.value
    return value
