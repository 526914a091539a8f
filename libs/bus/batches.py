"""What a partition has up to an offset: all of it, or an error; never what came within some time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from libs.bus.port import Bus, BusUnavailable, Message, Partition, Reader

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


async def kept_before(bus: Bus, partition: Partition, end: int) -> AsyncIterator[Message]:
    """The messages before an offset, as far as they are still kept.

    Args:
        bus: the cell's log.
        partition: what is read.
        end: offset at which the partition ends, or a message stands.

    Raises:
        BusUnavailable: the log cannot be reached, or messages that it says it has do not come.
    """
    begin = await bus.begin_offset(partition)
    async with aclosing(batches(await bus.reader({partition: 0}), partition, begin, end)) as found:
        async for messages in found:
            for message in messages:
                yield message


async def first_from(bus: Bus, partition: Partition, offset: int) -> Message | None:
    """The first message at or behind an offset before the partition's end; None: it does not come.

    Raises:
        OffsetLost: it is no longer kept.
        BusUnavailable: the log cannot be reached.
    """
    reader = await bus.reader({partition: offset})
    try:
        return next(iter(await reader.next_batch(1, SILENCE_S)), None)
    finally:
        await reader.close()
