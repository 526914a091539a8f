"""A bus that passes everything on to another one: what test doubles of a bus have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from libs.bus.port import Archived, Bus, Outgoing, Partition, Reader, Session, TopicLayout
from libs.contracts.base import Topic


class PassingBus:
    """See the port's `Bus`. A double overrides the calls in which it differs."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.cell = bus.cell

    async def create_topics(self, layout: TopicLayout) -> None:
        """As the bus."""
        await self.bus.create_topics(layout)

    async def partitions(self, topic: Topic) -> list[Partition]:
        """As the bus."""
        return await self.bus.partitions(topic)

    async def open_session(self, name: str) -> Session:
        """As the bus."""
        return await self.bus.open_session(name)

    async def reader(self, starts: Mapping[Partition, int]) -> Reader:
        """As the bus."""
        return await self.bus.reader(starts)

    async def append(self, outputs: Sequence[Outgoing]) -> None:
        """As the bus."""
        await self.bus.append(outputs)

    async def end_offset(self, partition: Partition) -> int:
        """As the bus."""
        return await self.bus.end_offset(partition)

    async def begin_offset(self, partition: Partition) -> int:
        """As the bus."""
        return await self.bus.begin_offset(partition)

    async def archived(self) -> Archived | None:
        """As the bus."""
        return await self.bus.archived()

    async def give_back(self, befores: Mapping[Partition, int], archived: Archived) -> None:
        """As the bus."""
        await self.bus.give_back(befores, archived)

    async def close(self) -> None:
        """As the bus."""
        await self.bus.close()
