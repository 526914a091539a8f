"""Where a reader of a short-lived topic goes on: at its position, or, when there is none, at what is recent.

A missing position says that the reader is new, or that the broker has forgotten it. Which of the two cannot be known,
and neither case needs the week of measurements that the topic may hold: what they were needed for is over.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial

from libs.bus.batches import first_from
from libs.bus.port import Bus, Message, OffsetLost, Partition, Position
from libs.runtime.log import fields
from libs.runtime.patience import Patience

log = logging.getLogger(__name__)

REACH_S = 60.0
"""How far back a reader without a position starts: more than any window stays open."""


async def resumed(bus: Bus, committed: Mapping[Partition, Position], patience: Patience) -> dict[Partition, int]:
    """{partition: offset to read from}; waits while the log is away.

    Args:
        bus: the cell's.
        committed: the reader's positions in a short-lived topic; `Position(0)` where there is none.
        patience: how long to wait for a log that is away.

    Raises:
        StopRequested: asked to stop while the log could not be reached.
    """
    starts: dict[Partition, int] = {}
    for partition, position in committed.items():
        starts[partition] = position.next_offset
        if position == Position(0):
            looking = f"look for what is recent on {partition.topic}/{partition.index}"
            starts[partition] = await patience.outlast(partial(recent, bus, partition), looking)
            if starts[partition] > 0:
                log.warning(
                    "no position: what is not recent is passed over",
                    extra=fields(topic=partition.topic, partition=partition.index, next_offset=starts[partition]),
                )
    return starts


async def recent(bus: Bus, partition: Partition, reach_s: float = REACH_S) -> int:
    """The first message that was appended at most `reach_s` before the last one; 0 when all that is kept was.

    Judged by the messages alone, so that what came before a rest of the whole cell is found after it. Times of
    appending come from several machines: the place is near enough, not exact.
    """
    end = await bus.end_offset(partition)
    last = await _message_at(bus, partition, end - 1) if end > 0 else None
    first = await _message_at(bus, partition, 0) if last is not None else None
    if last is None or first is None or first.appended_at_s >= last.appended_at_s - reach_s:
        return 0
    older, recent_enough = first.offset, last.offset
    while older + 1 < recent_enough:
        middle = (older + recent_enough) // 2
        message = await _message_at(bus, partition, middle)
        if message is not None and message.appended_at_s >= last.appended_at_s - reach_s:
            recent_enough = middle
        else:
            older = middle if message is None else message.offset
    return recent_enough


async def _message_at(bus: Bus, partition: Partition, offset: int) -> Message | None:
    """The first message at or after an offset; None when it has been deleted meanwhile."""
    try:
        return await first_from(bus, partition, offset)
    except OffsetLost:
        return None
