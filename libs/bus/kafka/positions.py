"""How far a session has come, as its consumer group has it."""

from __future__ import annotations

import asyncio

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata

from libs.bus.kafka.connection import Connection
from libs.bus.kafka.errors import reaching_kafka
from libs.bus.kafka.topics import admin_client
from libs.bus.port import Position

ANSWER_TIMEOUT_S = 10.0
COORDINATOR_BACKOFF_S = 0.1


async def committed(connection: Connection, group: str, place: TopicPartition) -> Position:
    """The group's committed position in a partition; `Position(0)` when there is none.

    Raises:
        BusUnavailable: Kafka cannot be reached.
    """
    async with reaching_kafka(f"read the position of {group}"), admin_client(connection) as admin:
        offsets = await asyncio.wait_for(_offsets(admin, group, place), ANSWER_TIMEOUT_S)
    found = offsets.get(place)
    if found is None or found.offset < 0:
        return Position(0)
    return Position(found.offset, found.metadata or "")


async def _offsets(
    admin: AIOKafkaAdminClient, group: str, place: TopicPartition
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Ask until the group's coordinator is there: it is elected when the first group is asked for."""
    while True:
        try:
            offsets: dict[TopicPartition, OffsetAndMetadata] = await admin.list_consumer_group_offsets(
                group, partitions=[place]
            )
            return offsets
        except KafkaError as error:
            if not error.retriable:
                raise
            await asyncio.sleep(COORDINATOR_BACKOFF_S)
