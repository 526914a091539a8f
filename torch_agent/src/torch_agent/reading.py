"""The messages of a partition, as an agent reads them once at its start."""

from __future__ import annotations

from collections.abc import AsyncIterator

from libs.bus.port import Bus, Message, Partition

BATCH, WAIT_S = 1000, 5.0


async def up_to(bus: Bus, partition: Partition, end: int) -> AsyncIterator[Message]:
    """The messages before an offset, as far as they are still kept."""
    reader, at = await bus.reader({partition: 0}), 0
    try:
        while at < end:
            messages = await reader.next_batch(BATCH, WAIT_S)
            if not messages:  # the last offsets carry no messages
                return
            for message in messages:
                if message.offset < end:
                    yield message
            at = messages[-1].offset + 1
    finally:
        await reader.close()
