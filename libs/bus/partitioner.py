"""Murmur2, as the Java client and aiokafka use it: the same key is in the same partition on every adapter.

Written out here, as a process on another log need not import a Kafka client for it.
"""

from __future__ import annotations

SEED, FACTOR, WORD = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF


def partition_index(key: str, partitions: int) -> int:
    """The partition, from 0, of a key."""
    return (murmur2(key.encode()) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """The hash, as 32 bits without sign."""
    hashed = SEED ^ len(data)
    whole = len(data) - len(data) % 4
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * FACTOR & WORD
        word = (word ^ word >> 24) * FACTOR & WORD
        hashed = (hashed * FACTOR & WORD) ^ word
    if whole < len(data):
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * FACTOR & WORD
    hashed = (hashed ^ hashed >> 13) * FACTOR & WORD
    return hashed ^ hashed >> 15
