"""Reads what brokers and topics are set to. Changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import for_code
from aiokafka.protocol.api import Request, RequestStruct, Response, ResponseHeader_v0, ResponseHeader_v1
from aiokafka.protocol.types import CompactArray, CompactString, Int16, Int32, Schema, TaggedFields

from libs.bus.kafka.connection import Connection
from libs.bus.kafka.errors import reaching_kafka
from libs.bus.kafka.needs import BROKER_NEEDS, Seen, Setting, topic_needs
from libs.bus.kafka.topics import admin_client
from libs.contracts.base import Topic

ANSWER_TIMEOUT_S = 20.0
METADATA_VERSION = "metadata.version"
SUPPORTED_FEATURES = 0
"""Tag of the field in the answer."""


async def look(url: str, cell: str) -> Seen:
    """Ask all brokers for their settings, and one for those of the cell's topics.

    Args:
        url: the bus, `kafka://…`.
        cell: prefix of the topics.

    Raises:
        BusError: the URL cannot be understood.
        BusUnavailable: Kafka cannot be reached, or refuses to describe itself to this user.
    """
    connection = Connection.parse(url)
    async with (
        reaching_kafka(f"read the settings of {connection.servers}"),
        asyncio.timeout(ANSWER_TIMEOUT_S),
        admin_client(connection) as admin,
    ):
        brokers = [broker["node_id"] for broker in (await admin.describe_cluster())["brokers"]]
        replicas = await _replicas(admin, cell)
        return Seen(
            servers=connection.servers,
            secured=bool(connection.security),
            brokers=await _brokers(admin, brokers),
            metadata_levels=await _metadata_levels(connection, brokers),
            cell=cell,
            topics=await _topics(admin, cell, replicas),
            replicas=replicas,
        )


async def _replicas(admin: AIOKafkaAdminClient, cell: str) -> dict[Topic, int]:
    described = await admin.describe_topics([f"{cell}.{topic.value}" for topic in Topic])
    return {
        Topic(found["topic"].removeprefix(f"{cell}.")): min(len(part["replicas"]) for part in found["partitions"])
        for found in described
        if not found["error_code"]
    }


async def _brokers(admin: AIOKafkaAdminClient, brokers: Iterable[int]) -> dict[str, dict[str, Setting]]:
    wanted = dict.fromkeys(need.setting for need in BROKER_NEEDS)
    asked = [ConfigResource(ConfigResourceType.BROKER, str(broker), wanted) for broker in brokers]
    return await _settings(admin, asked)


async def _topics(admin: AIOKafkaAdminClient, cell: str, there: dict[Topic, int]) -> dict[Topic, dict[str, Setting]]:
    asked = [
        ConfigResource(
            ConfigResourceType.TOPIC,
            f"{cell}.{topic.value}",
            dict.fromkeys(need.setting for need in topic_needs(topic, replicas)),
        )
        for topic, replicas in there.items()
    ]
    found = await _settings(admin, asked) if asked else {}
    return {Topic(name.removeprefix(f"{cell}.")): settings for name, settings in found.items()}


async def _settings(admin: AIOKafkaAdminClient, asked: list[ConfigResource]) -> dict[str, dict[str, Setting]]:
    """{name of the resource: its settings}"""
    answers = [answer.to_object() for answer in await admin.describe_configs(asked)]
    found: dict[str, dict[str, Setting]] = {}
    for resource in [resource for answer in answers for resource in answer["resources"]]:
        if resource["error_code"]:
            raise for_code(resource["error_code"])(f"{resource['resource_name']}: {resource['error_message']}")
        found[resource["resource_name"]] = {
            entry["config_names"]: Setting(entry["config_value"], entry["read_only"])
            for entry in resource["config_entries"]
            if entry["config_value"] is not None
        }
    return found


async def _metadata_levels(connection: Connection, brokers: Sequence[int]) -> dict[str, int | None]:
    async with _plain_client(connection) as client:
        return {str(broker): await _metadata_level(client, broker) for broker in brokers}


@asynccontextmanager
async def _plain_client(connection: Connection) -> AsyncIterator[AIOKafkaClient]:
    """A client that sends what the admin client has no words for."""
    client = AIOKafkaClient(**connection.client)
    try:
        await client.bootstrap()
        yield client
    finally:
        await client.close()


async def _metadata_level(client: AIOKafkaClient, broker: int) -> int | None:
    """The highest `metadata.version` that a broker supports; None when its version is too old to tell."""
    try:
        answer = await client.send(broker, _FeaturesRequest())
    except NotImplementedError:
        return None
    tags: dict[int, bytes] = answer.tags
    return supported(tags.get(SUPPORTED_FEATURES, b"\x00")).get(METADATA_VERSION)


def supported(field: bytes) -> dict[str, int]:
    """{feature: highest level}, from the tagged field of an ApiVersions answer."""
    features: Any = _FEATURES.decode(BytesIO(field))
    return {name: most for name, _, most, _ in features or []}


_FEATURES = CompactArray(
    ("name", CompactString("utf-8")), ("min_version", Int16), ("max_version", Int16), ("tags", TaggedFields)
)


class _FeaturesResponse(Response):  # type: ignore[misc]  # the client has no types
    """ApiVersions in version 3, the first one that has features; aiokafka stops at 2."""

    API_KEY = 18
    API_VERSION = 3
    SCHEMA = Schema(
        ("error_code", Int16),
        (
            "api_versions",
            CompactArray(("api_key", Int16), ("min_version", Int16), ("max_version", Int16), ("tags", TaggedFields)),
        ),
        ("throttle_time_ms", Int32),
        ("tags", TaggedFields),
    )
    tags: dict[int, bytes]


class _FeaturesStruct(RequestStruct):  # type: ignore[misc]
    API_KEY = 18
    API_VERSION = 3
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _FeaturesResponse
    SCHEMA = Schema(
        ("client_software_name", CompactString("utf-8")),
        ("client_software_version", CompactString("utf-8")),
        ("tags", TaggedFields),
    )

    def parse_response_header(self, read_buffer: BytesIO | bytes) -> ResponseHeader_v0 | ResponseHeader_v1:
        """Of this one answer the header is of the old form, so that clients of any age can read it."""
        return ResponseHeader_v0.decode(read_buffer)


class _FeaturesRequest(Request[_FeaturesStruct]):  # type: ignore[misc]
    API_KEY = 18

    def build(self, request_struct_class: type[_FeaturesStruct]) -> _FeaturesStruct:
        return request_struct_class("sanjaya", "1", {})
