"""The dead letters, as a gateway reads them when it starts."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from libs.bus.memory import MemoryBus
from libs.bus.port import BusUnavailable, Message, Partition, TopicLayout
from libs.contracts.base import Topic
from libs.runtime.deadletter import dead_letter
from libs.testing.late import LateBus
from services.gateway.adapters.dead_letters import DeadLetters

LETTERS = 3


@asynccontextmanager
async def reading(bus: LateBus) -> AsyncIterator[DeadLetters]:
    """A gateway's dead letters; the log has some already."""
    await bus.create_topics(TopicLayout())
    for offset in range(LETTERS):
        taken = Message(Partition(Topic.TELEMETRY, 0), offset, "n1", [], b"{", 1.0)
        await bus.append([dead_letter(taken, "introspection", ValueError("no JSON"))])
    stop = asyncio.Event()
    found = DeadLetters(bus, stop)
    running = asyncio.create_task(found.run())
    yield found
    stop.set()
    await running


async def test_all_that_stood_there_at_the_start_is_read_before_it_is_counted() -> None:
    async with reading(LateBus(MemoryBus("lab", None), 9.0)) as found:
        await found.caught_up.wait()
        assert found.total == LETTERS


async def test_a_letter_that_comes_late_is_not_taken_for_none() -> None:
    async with reading(LateBus(MemoryBus("lab", None), 9.0)) as found:
        message = await found.message(1)
        assert message is not None and message.offset == 1
        assert await found.message(LETTERS) is None


async def test_a_letter_that_does_not_come_is_an_error() -> None:
    async with reading(LateBus(MemoryBus("lab", None), math.inf)) as found:
        with pytest.raises(BusUnavailable, match="expected the letter at offset 1"):
            await found.message(1)
        assert not found.caught_up.is_set()
