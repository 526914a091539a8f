"""How an agent waits for the log and the gateway, however long they take to be there."""

from __future__ import annotations

import asyncio
import logging
import time

from libs.bus.connect import connect, is_gateway
from libs.bus.port import Bus, BusError, BusUnavailable, Fenced, Refused, TellsNodeKeys
from libs.runtime.waits import within
from torch_agent.beginning import beginning
from torch_agent.journal import Journal
from torch_agent.options import Options
from torch_agent.ordering import orders_partition
from torch_agent.publishing import Publisher

log = logging.getLogger(__name__)

RETRY_S = 1.0


async def connected(options: Options, stop: asyncio.Event) -> Bus | None:
    """The bus, however long a gateway takes to be there; None when asked to stop meanwhile."""
    while not stop.is_set():
        try:
            return await connect(options.bus, options.cell, options.token)
        except BusUnavailable as error:
            if not is_gateway(options.bus):
                raise
            log.warning("waiting for the gateway: %s", error)
            await within(stop, RETRY_S)
    return None


async def reach(bus: Bus, node_id: str, journal: Journal, stop: asyncio.Event) -> tuple[Publisher | None, int]:
    """Open the session and find the beginning among the orders, however long the log takes to be there.

    Returns:
        The session, None when asked to stop meanwhile; and the offset of the first order to be taken.
    """
    while not stop.is_set():
        publisher: Publisher | None = None
        try:
            orders = await orders_partition(bus, node_id)
            publisher = Publisher(bus, node_id, orders, journal)
            begins = await beginning(bus, orders, node_id, journal, await publisher.open())
            journal.record(facts=begins.lost, next_order=begins.next_order, time_s=time.time())
            return publisher, begins.next_order
        except (Fenced, Refused):
            raise
        except BusError as error:
            log.warning("waiting for the log: %s", error)
            if publisher is not None:
                await publisher.close()
            await within(stop, RETRY_S)
    return None, 0


async def node_key(bus: TellsNodeKeys, node_id: str) -> bytes | None:
    """What the gateway hands over at the join, however long it takes to answer; None: it asks for no files."""
    while True:
        try:
            return await bus.node_key(node_id)
        except BusUnavailable as error:
            log.warning("waiting for the node's key: %s", error)
