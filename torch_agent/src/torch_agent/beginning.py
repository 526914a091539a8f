"""Where an agent begins among its node's orders, from its own journal and from what the log says.

The journal knows best: the bus may have forgotten the position (a broker keeps that of a group without members for a
while only), or have an older one. A journal that is new, on a node that was set up anew, takes no order that was given
before it: such orders are for tasks of a former life, most of which have ended. Placement learns from NodeJoined that
the tasks which had been started are gone, and from JobExited (`lost`) the same of those that never were.
"""

from __future__ import annotations

import logging

import msgspec

from libs.bus import codec
from libs.bus.batches import kept_before
from libs.bus.port import Bus, Message, Partition, Position
from libs.contracts.agent import JobExited, JobStarted
from libs.contracts.base import Topic
from libs.contracts.placement import LaunchTask
from libs.contracts.wire import Undecodable
from libs.node.task import task_key
from torch_agent.journal import Journal
from torch_agent.ordering import order_for

log = logging.getLogger(__name__)

REPORTS = (b"job.started.", b"job.exited.")
"""How the types of an agent's reports begin, in every version."""
WHY_LOST = "the node was set up anew before it had started this task"


class OrdersRefused(Exception):
    """The journal and the log do not belong together; the message says where they differ."""


class Beginning(msgspec.Struct, frozen=True, kw_only=True):
    """Where to begin, and which orders are given up by that."""

    next_order: int
    lost: list[JobExited] = []


async def beginning(bus: Bus, orders: Partition, node_id: str, journal: Journal, committed: Position) -> Beginning:
    """Where to begin. To be asked before the node joins: what is ordered because of that comes behind.

    Args:
        committed: the position that the bus knows; Position(0) where it knows none.

    Raises:
        OrdersRefused: the journal has read further than the log goes.
        BusUnavailable: the log cannot be reached.
    """
    end, own = await bus.end_offset(orders), journal.next_order
    if own is None:
        return Beginning(next_order=end, lost=await _never_reported(bus, orders, end, node_id))
    if own > end:
        raise OrdersRefused(
            f"this agent's journal has applied the orders of node {node_id} up to offset {own} of partition "
            f"{orders.index}, but the log of cell {bus.cell} ends at {end}: it is another log, or has lost its end; "
            f"expected the log that the journal was written with, or another --state-dir"
        )
    if committed.next_offset < own:
        log.info("the log has the position %d on the orders, the journal %d: that counts", committed.next_offset, own)
    return Beginning(next_order=max(own, committed.next_offset))


async def _never_reported(bus: Bus, orders: Partition, end: int, node_id: str) -> list[JobExited]:
    """The ends of the tasks that were ordered of a former life of this node, and never reported by it."""
    launches: dict[str, LaunchTask] = {}
    async for message in kept_before(bus, orders, end):
        order = order_for(message, node_id)
        if isinstance(order, LaunchTask):
            launches[task_key(order.job_id, order.attempt)] = order
    if not launches:
        return []
    log.warning("this journal is new, and %d tasks were ordered before it: they are not started", len(launches))
    control = Partition(Topic.CONTROL, 0)
    async for message in kept_before(bus, control, await bus.end_offset(control)):
        event = _report(message)
        if event is not None and event.node_id == node_id:
            launches.pop(task_key(event.job_id, event.attempt), None)
    return [
        JobExited(
            job_id=order.job_id,
            attempt=order.attempt,
            node_id=node_id,
            exit_code=None,
            signal=None,
            outcome="lost",
            stderr_tail=WHY_LOST,
        )
        for order in launches.values()
    ]


def _report(message: Message) -> JobStarted | JobExited | None:
    """What an agent has reported of a task's start or end; None for every other record."""
    if not dict(message.headers).get("ce_type", b"").startswith(REPORTS):
        return None
    try:
        event = codec.record(message).envelope.event
    except Undecodable as error:
        log.error("a report cannot be read: %s", error)
        return None
    return event if isinstance(event, JobStarted | JobExited) else None
