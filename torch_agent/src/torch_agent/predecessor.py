"""Waits until the tasks of another agent of this node's name have stopped.

An agent whose state directory is new has none of the tasks of the agent before it, which may live: a name was given
twice, or a container begins while the one before it ends. Were the node announced now, the jobs of these tasks would be
placed anew beside them. They have stopped for certain when the log has heard nothing of their agent for as long as it
takes until a node is lost (`libs/node/lease.py`).
"""

from __future__ import annotations

import asyncio
import logging

from libs.bus.batches import BATCH, batches
from libs.bus.partitioner import partition_index
from libs.bus.port import Bus, Message, Partition, TellsTime
from libs.contracts.agent import NodeHeartbeat
from libs.contracts.base import Topic
from torch_agent.shim import boottime_s

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Longest time until the wait ends after the agent was told to end."""


async def until_silent(bus: Bus, node_id: str, lost_s: float, stop: asyncio.Event) -> None:
    """Wait until no heartbeat of the node has come to the log for so many seconds, or `stop` is set.

    Raises:
        BusError: the log cannot be read.
    """
    telemetry = Partition(Topic.TELEMETRY, partition_index(node_id, len(await bus.partitions(Topic.TELEMETRY))))
    end = await bus.end_offset(telemetry)
    heard = await _newest_heartbeat(bus, telemetry, end, node_id, lost_s)
    if heard is None:
        return
    now_s = await bus.now_s() if isinstance(bus, TellsTime) else None
    left_s = lost_s if now_s is None else lost_s - max(0.0, now_s - heard.appended_at_s)
    if left_s <= 0:
        return
    log.warning(
        "node %s has another agent, or had one a moment ago: this one begins when nothing has been heard of that for "
        "%g s; of two agents each needs a --node-id of its own",
        *(node_id, lost_s),
    )
    silent_at_s = boottime_s() + left_s
    reader = await bus.reader({telemetry: end})
    try:
        while (left_s := silent_at_s - boottime_s()) > 0 and not stop.is_set():
            if any(_is_heartbeat(message, node_id) for message in await reader.next_batch(BATCH, min(left_s, LOOK_S))):
                silent_at_s = boottime_s() + lost_s
    finally:
        await reader.close()


async def _newest_heartbeat(bus: Bus, telemetry: Partition, end: int, node_id: str, within_s: float) -> Message | None:
    """The node's last one of so many seconds before the partition's end, read backwards; None: there is none."""
    begin, newest_s = await bus.begin_offset(telemetry), None
    while end > begin:
        start = max(begin, end - BATCH)
        found = [
            m async for batch in batches(await bus.reader({telemetry: start}), telemetry, start, end) for m in batch
        ]
        for message in reversed(found):
            newest_s = message.appended_at_s if newest_s is None else newest_s
            if newest_s - message.appended_at_s > within_s:
                return None
            if _is_heartbeat(message, node_id):
                return message
        end = start
    return None


def _is_heartbeat(message: Message, node_id: str) -> bool:
    return message.key == node_id and ("ce_type", NodeHeartbeat.wire_type.encode()) in message.headers
