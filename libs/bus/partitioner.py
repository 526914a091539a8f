"""Murmur2, as the Java client and aiokafka use it: the same key is in the same partition on every adapter."""

from __future__ import annotations

from aiokafka.partitioner import murmur2


def partition_index(key: str, partitions: int) -> int:
    """The partition, from 0, of a key."""
    hashed: int = murmur2(key.encode())
    return (hashed & 0x7FFFFFFF) % partitions
