"""A key is where Kafka's own clients would put it."""

from __future__ import annotations

from aiokafka.partitioner import murmur2 as of_the_client
from hypothesis import given
from hypothesis import strategies as st

from libs.bus.partitioner import murmur2, partition_index


@given(st.binary(max_size=40))
def test_the_hash_is_that_of_the_kafka_client(data: bytes):
    assert murmur2(data) == of_the_client(data) & 0xFFFFFFFF


@given(st.text(max_size=20), st.integers(1, 64))
def test_the_partition_is_that_of_the_kafka_client(key: str, partitions: int):
    assert partition_index(key, partitions) == (of_the_client(key.encode()) & 0x7FFFFFFF) % partitions
