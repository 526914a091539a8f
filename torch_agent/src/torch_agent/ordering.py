"""Reads the node's orders from the log and hands them over, each once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from libs.bus import codec
from libs.bus.partitioner import partition_index
from libs.bus.port import Bus, BusUnavailable, Message, OffsetLost, Partition, Refused
from libs.contracts.base import Topic
from libs.contracts.placement import CheckGpus
from libs.contracts.wire import Undecodable
from libs.node.task import Order

log = logging.getLogger(__name__)

BATCH, WAIT_S, RETRY_S, REFUSED_S = 100, 5.0, 1.0, 5.0


async def orders_partition(bus: Bus, node_id: str) -> Partition:
    """The partition that carries this node's orders."""
    return Partition(Topic.ORDERS, partition_index(node_id, len(await bus.partitions(Topic.ORDERS))))


async def follow_orders(
    bus: Bus, partition: Partition, node_id: str, start: int, take: Callable[[list[Order | CheckGpus], int], None]
) -> None:
    """Hand orders to `take(orders, offset behind them)` for ever; outages of the log are waited for.

    Orders that were removed from the log before this agent has read them are passed over: the node has been away for so
    long that it counts as lost, and placement stops the tasks of attempts that are over when the node joins again.
    """
    while True:
        try:
            reader = await bus.reader({partition: start})
            try:
                while True:
                    messages = await reader.next_batch(BATCH, WAIT_S)
                    if messages:
                        start = messages[-1].offset + 1
                        take([o for message in messages if (o := order_for(message, node_id)) is not None], start)
            finally:
                await reader.close()
        except OffsetLost as error:  # archived orders; those that this node has not read are never removed
            start = await bus.begin_offset(partition)
            take([], start)  # there may be none behind them for long
            log.info("orders of other nodes were archived, going on behind them: %s", error)
        except (BusUnavailable, Refused) as error:
            log.warning("orders cannot be read now: %s", error)
            await asyncio.sleep(REFUSED_S if isinstance(error, Refused) else RETRY_S)


def order_for(message: Message, node_id: str) -> Order | CheckGpus | None:
    """The order, if it is for this node; a record that is no order is reported and passed over."""
    if message.key != node_id:
        return None
    try:
        event = codec.record(message).envelope.event
    except Undecodable as error:
        log.error("an order cannot be read: %s", error)
        return None
    return event if isinstance(event, Order | CheckGpus) else None
