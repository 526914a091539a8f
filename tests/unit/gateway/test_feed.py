"""The live end of control, as followers read it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from libs.bus import codec
from libs.bus.memory import MemoryBus
from libs.bus.port import Bus, BusError, BusUnavailable, Message, TopicLayout
from libs.contracts.envelope import Record
from libs.testing.late import LateBus
from services.gateway.adapters.feed import Feed
from tests.unit.projection.story import Story


async def test_a_record_is_decoded_once_for_all_followers_and_not_without_any(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded, record_of = list[int](), codec.record

    def counted(message: Message) -> Record:
        decoded.append(message.offset)
        return record_of(message)

    monkeypatch.setattr(codec, "record", counted)
    bus, stop, story = MemoryBus("lab", None), asyncio.Event(), Story().running()
    await bus.create_topics(TopicLayout())
    feed = Feed(bus, stop)
    running = asyncio.create_task(feed.run())
    await feed.started.wait()
    await bus.append([codec.outgoing(record.envelope) for record in story.records])
    async with asyncio.timeout(60.0):
        while feed.next_offset < len(story.records):
            await asyncio.sleep(0.01)
    assert decoded == []
    for _ in range(2):
        batches = [batch async for batch in feed.follow(2, 5.0, end=5)]
        assert [entry.record.offset for batch in batches for entry in batch] == [2, 3, 4]
    assert decoded[:3] == [2, 3, 4] and len(decoded) == len(set(decoded))
    stop.set()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


STORY = Story().running().records


@asynccontextmanager
async def begun_late(bus: Bus, stop: asyncio.Event | None = None) -> AsyncIterator[Feed]:
    """The feed of a gateway that starts when the story is over: none of it is kept in memory."""
    await bus.create_topics(TopicLayout())
    await bus.append([codec.outgoing(record.envelope) for record in STORY])
    feed = Feed(bus, stop or asyncio.Event())
    running = asyncio.create_task(feed.run())
    await feed.started.wait()
    yield feed
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_what_comes_late_from_the_log_is_not_left_out() -> None:
    async with begun_late(LateBus(MemoryBus("lab", None), 9.0)) as feed:
        batches = [batch async for batch in feed.follow(0, 5.0, end=len(STORY))]
    assert [entry.offset for batch in batches for entry in batch] == list(range(len(STORY)))


async def test_a_part_is_an_error_where_the_gateway_ends_meanwhile() -> None:
    stop = asyncio.Event()
    async with begun_late(MemoryBus("lab", None), stop) as feed:
        following = feed.follow(0, 5.0, end=len(STORY))
        await anext(following)
        stop.set()
        with pytest.raises(BusUnavailable, match="the gateway is ending"):
            await anext(following)
        with pytest.raises(BusUnavailable, match="the gateway is ending"):
            await anext(feed.follow(0, 5.0, end=len(STORY)))


async def test_what_does_not_come_from_the_log_is_an_error() -> None:
    async with begun_late(LateBus(MemoryBus("lab", None), math.inf)) as feed:
        with pytest.raises(BusError, match=f"expected messages up to {len(STORY)}"):
            await anext(feed.follow(0, 5.0))
