"""The messages of a partition, as an agent reads them once at its start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from libs.bus.batches import batches
from libs.bus.port import Bus, Message, Partition


async def up_to(bus: Bus, partition: Partition, end: int) -> AsyncIterator[Message]:
    """The messages before an offset, as far as they are still kept.

    Args:
        end: offset at which the partition ends, or a message stands.

    Raises:
        BusUnavailable: the log cannot be reached, or messages that it says it has do not come.
    """
    begin = await bus.begin_offset(partition)
    async with aclosing(batches(await bus.reader({partition: 0}), partition, begin, end)) as found:
        async for messages in found:
            for message in messages:
                yield message
