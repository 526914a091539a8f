"""Orders are read on, also where those before them were archived meanwhile."""

from __future__ import annotations

import asyncio

from torch_agent.ordering import follow_orders, orders_partition

from libs.bus import codec
from libs.bus.memory import MemoryBus
from libs.bus.port import Archived, TopicLayout
from libs.contracts.base import Topic
from libs.contracts.envelope import Envelope
from libs.contracts.placement import ResumeTask, SuspendTask
from libs.node.task import Order


async def test_a_node_goes_on_behind_archived_orders_of_other_nodes():
    bus = MemoryBus("lab")
    await bus.create_topics(TopicLayout({Topic.ORDERS: 1}))
    partition = await orders_partition(bus, "n1")
    given = [SuspendTask(node_id=node_id, job_id="j", attempt=1) for node_id in ("n1", "n2", "n2")]
    wanted = ResumeTask(node_id="n1", job_id="j", attempt=1)
    for number, order in enumerate([*given, wanted]):
        envelope = Envelope(id=f"o{number}", source="placement", time_s=float(number), event=order)
        await bus.append([codec.outgoing(envelope)])
    await bus.give_back({partition: 3}, Archived(log_id="o0", directory="/archive", next_offset=9))
    taken: asyncio.Queue[tuple[list[Order], int]] = asyncio.Queue()
    following = asyncio.create_task(
        follow_orders(bus, partition, "n1", 1, lambda orders, behind: taken.put_nowait((orders, behind)))
    )
    async with asyncio.timeout(20):
        assert await taken.get() == ([], 3), "the position is noted, also while there is no order behind it"
        assert await taken.get() == ([wanted], 4)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await bus.close()
