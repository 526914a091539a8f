"""The local broker as a Kafka: what the bus relies on, asked through aiokafka."""

import asyncio
import os
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import ProducerFenced

pytest_plugins = ("libs.testing.kafka",)

MANY_BYTES = 16 * 1024 * 1024


@pytest_asyncio.fixture
async def admin(kafka_bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    await client.start()
    yield client
    await client.close()


@pytest_asyncio.fixture
async def topic(admin: AIOKafkaAdminClient, request: pytest.FixtureRequest) -> TopicPartition:
    """A topic of one partition, named after the test and the moment, as the broker may be an old one."""
    name = f"{request.node.name}-{time.time_ns()}"
    answer = await admin.create_topics([NewTopic(name, 1, 1, topic_configs={"retention.ms": "-1"})])
    assert [error_code for _, error_code, _ in answer.topic_errors] == [0]
    return TopicPartition(name, 0)


@pytest_asyncio.fixture
async def committed(kafka_bootstrap: str, topic: TopicPartition) -> AsyncIterator[AIOKafkaConsumer]:
    """A read_committed consumer of the topic, in a group of which it is no member; it reads from the start."""
    async with AIOKafkaConsumer(
        bootstrap_servers=kafka_bootstrap,
        group_id=_group(topic),
        enable_auto_commit=False,
        isolation_level="read_committed",
        max_partition_fetch_bytes=MANY_BYTES,
    ) as consumer:
        consumer.assign([topic])
        consumer.seek(topic, 0)
        yield consumer


@pytest.mark.asyncio
async def test_records_and_offsets_are_committed_together(
    kafka_bootstrap: str, topic: TopicPartition, committed: AIOKafkaConsumer
) -> None:
    async with _producer(kafka_bootstrap, topic) as producer:
        async with producer.transaction():
            await producer.send(topic.topic, b"kept")
            await producer.send_offsets_to_transaction({topic: 7}, _group(topic))
        await producer.begin_transaction()
        await producer.send_and_wait(topic.topic, b"dropped")
        await producer.send_offsets_to_transaction({topic: 8}, _group(topic))
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(topic.topic, b"kept too")
    assert await _values(committed, 2) == [b"kept", b"kept too"]
    assert await committed.committed(topic) == 7


@pytest.mark.asyncio
async def test_an_open_transaction_is_invisible(
    kafka_bootstrap: str, topic: TopicPartition, committed: AIOKafkaConsumer
) -> None:
    async with _producer(kafka_bootstrap, topic) as producer, producer.transaction():
        await producer.send_and_wait(topic.topic, b"not yet")
        assert await committed.end_offsets([topic]) == {topic: 0}, "committed readers are told the last stable offset"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(committed.getone(), 0.5)
    assert await _values(committed, 1) == [b"not yet"]


@pytest.mark.asyncio
async def test_a_second_producer_of_the_same_id_fences_the_first(
    kafka_bootstrap: str, topic: TopicPartition, committed: AIOKafkaConsumer
) -> None:
    async with _producer(kafka_bootstrap, topic) as first:
        await first.begin_transaction()
        await first.send_and_wait(topic.topic, b"of the first")
        async with _producer(kafka_bootstrap, topic) as second:
            with pytest.raises(ProducerFenced):
                await first.send_and_wait(topic.topic, b"too late")
            async with second.transaction():
                await second.send(topic.topic, b"of the second")
    assert await _values(committed, 1) == [b"of the second"]


@pytest.mark.asyncio
async def test_a_transaction_left_open_is_aborted_soon(
    kafka_bootstrap: str, topic: TopicPartition, committed: AIOKafkaConsumer
) -> None:
    async with (
        _producer(kafka_bootstrap, topic, transaction_timeout_ms=1000) as stuck,
        AIOKafkaProducer(bootstrap_servers=kafka_bootstrap) as other,
    ):
        await stuck.begin_transaction()
        await stuck.send_and_wait(topic.topic, b"left open")
        await other.send_and_wait(topic.topic, b"behind it")
        assert await _values(committed, 1, timeout_s=55) == [b"behind it"]


@pytest.mark.asyncio
async def test_a_record_of_5_mib_passes(
    kafka_bootstrap: str, topic: TopicPartition, committed: AIOKafkaConsumer
) -> None:
    value = os.urandom(5 * 1024 * 1024)
    async with _producer(kafka_bootstrap, topic) as producer, producer.transaction():
        await producer.send(topic.topic, value)
    assert await _values(committed, 1) == [value]


@pytest.mark.asyncio
async def test_a_topic_has_the_configs_that_it_was_created_with(
    admin: AIOKafkaAdminClient, topic: TopicPartition
) -> None:
    answers = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic.topic)])
    configs = {config[0]: config[1] for config in answers[0].resources[0][4]}
    assert configs["retention.ms"] == "-1"


@pytest.mark.asyncio
async def test_begin_and_end_are_listed(
    kafka_bootstrap: str, topic: TopicPartition, committed: AIOKafkaConsumer
) -> None:
    async with _producer(kafka_bootstrap, topic) as producer, producer.transaction():
        await producer.send(topic.topic, b"one")
    assert await _values(committed, 1) == [b"one"]  # a commit returns before its marker is written
    assert await committed.beginning_offsets([topic]) == {topic: 0}
    assert await committed.end_offsets([topic]) == {topic: 2}, "one record and the marker of its transaction"


def _group(topic: TopicPartition) -> str:
    return f"group-{topic.topic}"


def _producer(address: str, topic: TopicPartition, transaction_timeout_ms: int = 10_000) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        bootstrap_servers=address,
        transactional_id=f"writer-{topic.topic}",
        transaction_timeout_ms=transaction_timeout_ms,
        max_request_size=MANY_BYTES,
    )


async def _values(consumer: AIOKafkaConsumer, count: int, timeout_s: float = 120) -> list[bytes]:
    return [(await asyncio.wait_for(consumer.getone(), timeout_s)).value for _ in range(count)]
