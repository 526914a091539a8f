"""One log with several connections, and small helpers to fill and read it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable

from libs.bus.port import Bus, Message, Outgoing, Partition, TopicLayout
from libs.contracts.base import Topic

CELL = "lab"
CONTROL = Partition(Topic.CONTROL, 0)
LAYOUT = TopicLayout(
    {
        Topic.CONTROL: 1,
        Topic.ORDERS: 2,
        Topic.TELEMETRY: 3,
        Topic.PROFILES: 1,
        Topic.LOGS: 2,
        Topic.DEADLETTER: 1,
    }
)
PATIENCE_S = 120.0
"""How long a test waits for what must come: longer than any adapter takes on a busy machine."""


class LogUnderTest(ABC):
    """An empty log that several processes would share; each connection stands for one of them."""

    def __init__(self) -> None:
        self._open: list[Bus] = []

    @abstractmethod
    async def _connect(self, cell: str) -> Bus:
        """One more independent connection."""

    @abstractmethod
    async def _crash(self, bus: Bus) -> None:
        """Let the process that holds this connection die: nothing is said to the log, nothing is tidied up."""

    async def connect(self, cell: str = CELL) -> Bus:
        """A connection to a cell that has its topics."""
        bus = await self.connect_bare(cell)
        await bus.create_topics(LAYOUT)
        return bus

    async def connect_bare(self, cell: str) -> Bus:
        """A connection to a cell with or without its topics."""
        bus = await self._connect(cell)
        self._open.append(bus)
        return bus

    async def crash(self, bus: Bus) -> None:
        """The process that holds this connection dies."""
        self._open.remove(bus)
        await self._crash(bus)

    async def close(self) -> None:
        """Close what is still open."""
        for bus in self._open:
            await bus.close()


def text(topic: Topic, key: str, value: str) -> Outgoing:
    """A message with a short text."""
    return Outgoing(topic, key, [("kind", b"text")], value.encode())


def texts(messages: Iterable[Message]) -> list[str]:
    """The texts of messages."""
    return [message.value.decode() for message in messages]


async def everything(bus: Bus, topic: Topic) -> list[Message]:
    """All messages of a topic, partition by partition."""
    found: list[Message] = []
    for partition in await bus.partitions(topic):
        found += await until_end(bus, partition)
    return found


async def until_end(bus: Bus, partition: Partition, start: int = 0) -> list[Message]:
    """The messages of a partition up to its present end."""
    end = await bus.end_offset(partition)
    found: list[Message] = []
    if end <= start:
        return found
    reader = await bus.reader({partition: start})
    try:
        while not found or found[-1].offset + 1 < end:
            batch = await reader.next_batch(1000, PATIENCE_S)
            assert batch, f"nothing came for {PATIENCE_S} s, expected messages up to offset {end}"
            found += batch
    finally:
        await reader.close()
    return found


async def take(bus: Bus, starts: dict[Partition, int], count: int) -> list[Message]:
    """So many messages from these offsets on."""
    reader = await bus.reader(starts)
    found: list[Message] = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < count:
                found += await reader.next_batch(count - len(found), PATIENCE_S)
    finally:
        await reader.close()
    return found
