"""How far a session has come, as its consumer group has it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import CommitFailedError, KafkaError
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
        found = await asyncio.wait_for(offset(admin, group, place), ANSWER_TIMEOUT_S)
    return Position(found.offset, found.metadata or "") if found.offset >= 0 else Position(0)


async def offset(admin: AIOKafkaAdminClient, group: str, place: TopicPartition) -> OffsetAndMetadata:
    """Ask until the group's coordinator is there, and has read what it keeps; -1 when the group has no offset.

    A coordinator is elected when the first group is asked for, and loads its groups after a restart. While it
    loads, its answer is an error for the group as a whole, which the client drops: what is left is an answer
    without the partition, where one with -1 would say that there is no offset.
    """
    while True:
        try:
            offsets = await admin.list_consumer_group_offsets(group, partitions=[place])
        except KafkaError as error:
            if not error.retriable:
                raise
        else:
            if place in offsets:
                found: OffsetAndMetadata = offsets[place]
                return found
        await asyncio.sleep(COORDINATOR_BACKOFF_S)


async def set_positions(connection: Connection, group: str, positions: Mapping[TopicPartition, int]) -> bool:
    """Commit positions for a group without members, as `kafka-consumer-groups.sh --reset-offsets` does.

    Returns:
        False when the group has members: their positions are their own business.

    Raises:
        BusUnavailable: Kafka cannot be reached.
    """
    consumer = AIOKafkaConsumer(group_id=group, enable_auto_commit=False, **connection.client)
    async with reaching_kafka(f"set the positions of {group}"):
        try:
            await consumer.start()
            consumer.assign(list(positions))
            await consumer.commit(dict(positions))
        except CommitFailedError:
            return False
        finally:
            await consumer.stop()
    return True
