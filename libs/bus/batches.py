"""What a partition has up to an offset: all of it, or an error; never what came within some time."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from libs.bus.port import BusUnavailable, Message, Partition, Reader

BATCH = 1000
SILENCE_S = 10.0
"""How long to wait for messages that the log says it has."""


async def batches(reader: Reader, partition: Partition, start: int, end: int) -> AsyncGenerator[list[Message], None]:
    """The messages of a partition from `start` up to `end`, at which the partition ends or a message stands.

    No batch is empty.

    Args:
        reader: of this partition alone, from `start` on; it is closed at the end.
        partition: what is read, for messages.
        start: offset of the first message.
        end: offset behind the last one.

    Raises:
        BusUnavailable: messages that the log says it has do not come.
    """
    try:
        while start < end:
            batch = await reader.next_batch(BATCH, SILENCE_S)
            if not batch:
                place = f"{partition.topic}/{partition.index}@{start}"
                raise BusUnavailable(f"{place}: nothing came for {SILENCE_S:g} s, expected messages up to {end}")
            start = batch[-1].offset + 1
            if kept := [message for message in batch if message.offset < end]:
                yield kept
    finally:
        await reader.close()
