"""The log in memory, within one event loop: for tests, and to say in the fewest lines what a log does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from libs.bus.partitioner import partition_index
from libs.bus.port import (
    MAX_MESSAGE_BYTES,
    BusError,
    Fenced,
    Message,
    MessageTooLarge,
    Outgoing,
    Partition,
    Position,
    TopicLayout,
)
from libs.contracts.base import Topic


@dataclass
class MemoryLog:
    """What several buses share, as several processes share a file."""

    partitions: dict[Partition, list[Message]] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    positions: dict[tuple[str, Partition], Position] = field(default_factory=dict)
    appended: asyncio.Condition = field(default_factory=asyncio.Condition)

    def count(self, topic: Topic) -> int:
        """Partitions of a topic.

        Raises:
            BusError: it does not exist.
        """
        count = sum(1 for partition in self.partitions if partition.topic is topic)
        if not count:
            raise BusError(f"topic {topic.value} does not exist; create the cell's topics first")
        return count

    async def append(self, outputs: Sequence[Outgoing]) -> list[int]:
        """Append all, or nothing when one is too large."""
        for output in outputs:
            if len(output.value) > MAX_MESSAGE_BYTES:
                raise MessageTooLarge(
                    f"message {output.key!r} for {output.topic.value} has {len(output.value)} bytes, "
                    f"at most {MAX_MESSAGE_BYTES} are accepted"
                )
        places = [Partition(o.topic, partition_index(o.key, self.count(o.topic))) for o in outputs]
        offsets = []
        for output, place in zip(outputs, places, strict=True):
            messages = self.partitions[place]
            offsets.append(len(messages))
            messages.append(Message(place, len(messages), output.key, list(output.headers), output.value, time.time()))
        async with self.appended:
            self.appended.notify_all()
        return offsets


class MemoryBus:
    """See the port's `Bus`."""

    def __init__(self, cell: str, log: MemoryLog | None = None) -> None:
        self.cell = cell
        self.log = log or MemoryLog()

    async def create_topics(self, layout: TopicLayout) -> None:
        """See the port."""
        for topic, count in layout.partitions.items():
            if not any(partition.topic is topic for partition in self.log.partitions):
                self.log.partitions.update({Partition(topic, index): [] for index in range(count)})

    async def partitions(self, topic: Topic) -> list[Partition]:
        """See the port."""
        return [Partition(topic, index) for index in range(self.log.count(topic))]

    async def open_session(self, name: str) -> MemorySession:
        """See the port."""
        self.log.epochs[name] = self.log.epochs.get(name, 0) + 1
        return MemorySession(self.log, name, self.log.epochs[name])

    async def reader(self, starts: Mapping[Partition, int]) -> MemoryReader:
        """See the port."""
        return MemoryReader(self.log, dict(starts))

    async def append(self, outputs: Sequence[Outgoing]) -> None:
        """See the port."""
        await self.log.append(outputs)

    async def end_offset(self, partition: Partition) -> int:
        """See the port."""
        return len(self.log.partitions[partition])

    async def close(self) -> None:
        """See the port."""


class MemorySession:
    """See the port's `Session`."""

    def __init__(self, log: MemoryLog, name: str, epoch: int) -> None:
        self._log, self._name, self._epoch = log, name, epoch

    async def position(self, partition: Partition) -> Position:
        """See the port."""
        return self._log.positions.get((self._name, partition), Position(0))

    async def commit(
        self, outputs: Sequence[Outgoing], positions: Mapping[Partition, Position] | None = None
    ) -> list[int]:
        """See the port."""
        if self._log.epochs[self._name] != self._epoch:
            raise Fenced(f"session {self._name}: a newer session has taken over")
        offsets = await self._log.append(outputs)
        self._log.positions.update({(self._name, p): at for p, at in (positions or {}).items()})
        return offsets

    async def close(self) -> None:
        """See the port."""


class MemoryReader:
    """See the port's `Reader`."""

    def __init__(self, log: MemoryLog, places: dict[Partition, int]) -> None:
        self._log, self._places = log, places

    async def next_batch(self, max_messages: int, timeout_s: float) -> list[Message]:
        """See the port."""
        try:
            async with asyncio.timeout(timeout_s), self._log.appended:
                while not (found := self._look(max_messages)):
                    await self._log.appended.wait()
                return found
        except TimeoutError:
            return self._look(max_messages)

    def _look(self, max_messages: int) -> list[Message]:
        found: list[Message] = []
        for partition, start in list(self._places.items()):
            messages = self._log.partitions[partition][start : start + max_messages - len(found)]
            self._places[partition] = start + len(messages)
            found += messages
        return found

    async def close(self) -> None:
        """See the port."""
