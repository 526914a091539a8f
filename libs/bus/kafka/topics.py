"""The cell's topics: looked up, and created where they are missing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAlreadyExistsError

from libs.bus.kafka.connection import Connection
from libs.bus.kafka.errors import reaching_kafka
from libs.bus.kafka.topic_settings import BY_BROKER, settings_of
from libs.bus.port import TopicLayout
from libs.contracts.base import Topic

LOOK_AGAIN_S = 0.05
DYNAMIC_TOPIC_CONFIG = 1
"""Kafka's number of settings that were given to a topic."""

log = logging.getLogger(__name__)


async def partition_counts(connection: Connection, cell: str) -> dict[Topic, int]:
    """{topic: partitions} of the cell's topics that exist and have a leader of each partition."""
    async with reaching_kafka(f"look up the topics of {cell}"), admin_client(connection) as admin:
        described = await admin.describe_topics([f"{cell}.{topic.value}" for topic in Topic])
    return {
        Topic(found["topic"].removeprefix(f"{cell}.")): len(found["partitions"])
        for found in described
        if not found["error_code"] and all(p["leader"] >= 0 for p in found["partitions"])
    }


async def cells(connection: Connection) -> list[str]:
    """Names of the cells that have topics there; other programs may have some, too."""
    async with reaching_kafka("look up the cells"), admin_client(connection) as admin:
        found = set(await admin.list_topics())
    begins = (name.removesuffix(f".{Topic.CONTROL}") for name in found if name.endswith(f".{Topic.CONTROL}"))
    return [cell for cell in begins if all(f"{cell}.{topic.value}" in found for topic in Topic)]


async def create(connection: Connection, cell: str, layout: TopicLayout) -> None:
    """Create what does not exist yet; wait until every partition has a leader.

    A topic that exists keeps its settings, whatever they are: `sanjaya doctor --bus …` says which are not as needed.
    But the broker dates its records from now on: earlier versions left that to the producers.
    """
    async with reaching_kafka(f"create the topics of {cell}"), admin_client(connection) as admin:
        for topic, partitions in layout.partitions.items():
            name = f"{cell}.{topic.value}"
            await create_one(admin, connection, name, partitions, settings_of(topic, connection.replication_factor))
        await _date_by_broker(admin, [f"{cell}.{topic.value}" for topic in layout.partitions])
    while len(await partition_counts(connection, cell)) < len(layout.partitions):
        await asyncio.sleep(LOOK_AGAIN_S)


async def _date_by_broker(admin: AIOKafkaAdminClient, names: list[str]) -> None:
    """Have the broker date the records of topics that were created without it.

    The client can only state all settings of a topic at once, so those that were given to it are said again.
    """
    answers = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name) for name in names])
    found = [resource for answer in answers for resource in answer.to_object()["resources"]]
    changed = []
    for resource in found:
        given = {entry["config_names"]: entry["config_value"] for entry in resource["config_entries"] if _given(entry)}
        if not resource["error_code"] and given | BY_BROKER != given:
            changed.append(ConfigResource(ConfigResourceType.TOPIC, resource["resource_name"], given | BY_BROKER))
    for answer in await admin.alter_configs(changed) if changed else []:
        for resource in answer.to_object()["resources"]:
            if resource["error_code"]:
                log.warning("records of %s are dated by their producers: %s", resource["resource_name"], resource)


def _given(entry: dict[str, Any]) -> bool:
    """Whether a setting was given to the topic itself."""
    source = entry.get("config_source")
    return source == DYNAMIC_TOPIC_CONFIG if source is not None else not entry["is_default"]


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
    """Create a topic with these settings; one that exists is left as it is."""
    new = NewTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=connection.replication_factor,
        topic_configs=settings,
    )
    try:
        await admin.create_topics([new])
    except TopicAlreadyExistsError:
        return
