"""The name of a log."""

from __future__ import annotations

from libs.bus.codec import message_id
from libs.bus.port import Bus, Partition
from libs.contracts.base import Topic

CONTROL = Partition(Topic.CONTROL, 0)
FIRST_RECORD_S = 10.0


async def log_id(bus: Bus) -> str:
    """Id of the log's first event, also after that was archived: names the log itself. Empty while the log is.

    Raises:
        BusUnavailable: the log cannot be reached.
    """
    archived = await bus.archived()
    if archived is not None:
        return archived.log_id
    if await bus.end_offset(CONTROL) == 0:
        return ""
    reader = await bus.reader({CONTROL: 0})
    try:
        for message in await reader.next_batch(1, FIRST_RECORD_S):
            return message_id(message)
        return ""
    finally:
        await reader.close()
