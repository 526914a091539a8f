"""The cell's topics and their settings (DESIGN section 2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import TopicAlreadyExistsError

from libs.bus.kafka.connection import REQUEST_BYTES, Connection
from libs.bus.kafka.errors import reaching_kafka
from libs.bus.port import TopicLayout
from libs.contracts.base import Topic

FOR_EVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""No compaction: it would destroy the audit."""
A_WEEK = {"cleanup.policy": "delete", "retention.ms": str(7 * 24 * 3600 * 1000)}

LOOK_AGAIN_S = 0.05

SETTINGS = {
    Topic.CONTROL: FOR_EVER,
    Topic.ORDERS: FOR_EVER,
    Topic.TELEMETRY: A_WEEK,
    Topic.PROFILES: A_WEEK,
    Topic.LOGS: A_WEEK,
    Topic.DEADLETTER: FOR_EVER,
}


async def partition_counts(connection: Connection, cell: str) -> dict[Topic, int]:
    """{topic: partitions} of the cell's topics that exist and whose partitions all have a leader."""
    async with reaching_kafka(f"look up the topics of {cell}"), admin_client(connection) as admin:
        described = await admin.describe_topics([f"{cell}.{topic.value}" for topic in Topic])
    return {
        Topic(found["topic"].removeprefix(f"{cell}.")): len(found["partitions"])
        for found in described
        if not found["error_code"] and all(p["leader"] >= 0 for p in found["partitions"])
    }


async def create(connection: Connection, cell: str, layout: TopicLayout) -> None:
    """Create what does not exist yet; wait until every partition has a leader."""
    async with reaching_kafka(f"create the topics of {cell}"), admin_client(connection) as admin:
        for topic, partitions in layout.partitions.items():
            await create_one(admin, connection, f"{cell}.{topic.value}", partitions, SETTINGS[topic])
    while len(await partition_counts(connection, cell)) < len(layout.partitions):
        await asyncio.sleep(LOOK_AGAIN_S)


@asynccontextmanager
async def admin_client(connection: Connection) -> AsyncIterator[AIOKafkaAdminClient]:
    """An admin client for a short errand."""
    admin = AIOKafkaAdminClient(**connection.client)
    try:
        await admin.start()
        yield admin
    finally:
        await admin.close()


async def create_one(
    admin: AIOKafkaAdminClient, connection: Connection, name: str, partitions: int, settings: dict[str, str]
) -> None:
    """Create a topic with these settings and those that all topics share; one that exists is left as it is."""
    replicas = connection.replication_factor
    configs = {
        **settings,
        "min.insync.replicas": str(max(1, replicas - 1)),
        "unclean.leader.election.enable": "false",
        "max.message.bytes": str(REQUEST_BYTES),
    }
    new = NewTopic(name=name, num_partitions=partitions, replication_factor=replicas, topic_configs=configs)
    try:
        await admin.create_topics([new])
    except TopicAlreadyExistsError:
        return
