"""The log in memory, within one event loop: for tests and simulations, and to say in few lines what a log does."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Mapping, Sequence

from libs.bus.limits import check_before, check_positions, check_sizes
from libs.bus.naming import no_topic
from libs.bus.partitioner import partition_index
from libs.bus.port import Archived, BusError, Fenced, Message, OffsetLost, Outgoing, Partition, Position, TopicLayout
from libs.bus.steady import steady_s
from libs.contracts.base import Topic
from libs.contracts.envelope import whole_microseconds

_named: weakref.WeakValueDictionary[str, MemoryLog] = weakref.WeakValueDictionary()


class MemoryLog:
    """What several buses share, as several processes share a file. No method awaits, so each is one transaction."""

    def __init__(self) -> None:
        self._topics: dict[tuple[str, Topic], list[list[Message]]] = {}
        self._epochs: dict[tuple[str, str], int] = {}
        self._positions: dict[tuple[str, str, Partition], Position] = {}
        self._begins: dict[tuple[str, Partition], int] = {}
        self._archived: dict[str, Archived] = {}
        self.waiting: weakref.WeakSet[asyncio.Event] = weakref.WeakSet()
        """Set whenever something was appended."""

    @classmethod
    def named(cls, name: str) -> MemoryLog:
        """The log of this name, for as long as a bus holds it; without a name a log of one's own."""
        return _named.setdefault(name, cls()) if name else cls()

    def create(self, cell: str, layout: TopicLayout) -> None:
        """Make the topics that do not exist yet."""
        for topic, count in layout.partitions.items():
            self._topics.setdefault((cell, topic), [[] for _ in range(count)])

    def topic(self, cell: str, topic: Topic) -> list[list[Message]]:
        """The messages of a topic's partitions.

        Raises:
            BusError: it does not exist.
        """
        try:
            return self._topics[cell, topic]
        except KeyError:
            raise no_topic(cell, topic, (name for name, _ in self._topics)) from None

    def messages(self, cell: str, partition: Partition) -> list[Message]:
        """The messages of a partition that are kept; they have no gaps.

        Raises:
            BusError: it does not exist.
        """
        partitions = self.topic(cell, partition.topic)
        if not 0 <= partition.index < len(partitions):
            last = len(partitions) - 1
            raise BusError(f"topic {cell}.{partition.topic} has partitions 0 to {last}, not {partition.index}")
        return partitions[partition.index]

    def begin(self, cell: str, partition: Partition) -> int:
        """Offset of the oldest message that is kept."""
        return self._begins.get((cell, partition), 0)

    def end(self, cell: str, partition: Partition) -> int:
        """Offset after the last message."""
        return self.begin(cell, partition) + len(self.messages(cell, partition))

    def archived(self, cell: str) -> Archived | None:
        """The note of the latest removal."""
        return self._archived.get(cell)

    def give_back(self, cell: str, befores: Mapping[Partition, int], archived: Archived) -> None:
        """Remove what precedes these offsets."""
        for partition, before in befores.items():
            check_before(partition, before, self.end(cell, partition))
        self._archived[cell] = archived
        for partition, before in befores.items():
            begin = self.begin(cell, partition)
            if before > begin:
                del self.messages(cell, partition)[: before - begin]
                self._begins[cell, partition] = before

    def take_over(self, cell: str, session: str) -> int:
        """The epoch of a new holder of the session; older ones are fenced."""
        self._epochs[cell, session] = self._epochs.get((cell, session), 0) + 1
        return self._epochs[cell, session]

    def position(self, cell: str, session: str, partition: Partition) -> Position:
        """The committed position."""
        self.messages(cell, partition)
        return self._positions.get((cell, session, partition), Position(0))

    def commit(
        self,
        cell: str,
        session: str,
        epoch: int,
        outputs: Sequence[Outgoing],
        positions: Mapping[Partition, Position],
    ) -> list[int]:
        """Append and move positions, unless the epoch is over."""
        if self._epochs[cell, session] != epoch:
            raise Fenced(f"session {session} of cell {cell}: a newer session has taken over")
        check_positions(positions)
        for partition in positions:
            self.messages(cell, partition)
        offsets = self.append(cell, outputs)
        self._positions.update({(cell, session, partition): at for partition, at in positions.items()})
        return offsets

    def append(self, cell: str, outputs: Sequence[Outgoing]) -> list[int]:
        """Append all, or nothing when one is refused."""
        check_sizes(outputs)
        places = [Partition(o.topic, partition_index(o.key, len(self.topic(cell, o.topic)))) for o in outputs]
        now_s = whole_microseconds(steady_s())
        offsets: list[int] = []
        for output, place in zip(outputs, places, strict=True):
            offset = self.end(cell, place)
            offsets.append(offset)
            message = Message(place, offset, output.key, list(output.headers), output.value, now_s)
            self.messages(cell, place).append(message)
        for event in self.waiting:
            event.set()
        return offsets


class MemoryBus:
    """See the port's `Bus`."""

    def __init__(self, cell: str, log: MemoryLog | None = None) -> None:
        self.cell = cell
        self.log = log or MemoryLog()
        self._closed = False
        self._readers: weakref.WeakSet[MemoryReader] = weakref.WeakSet()

    async def create_topics(self, layout: TopicLayout) -> None:
        """See the port."""
        self.check_open()
        self.log.create(self.cell, layout)

    async def partitions(self, topic: Topic) -> list[Partition]:
        """See the port."""
        self.check_open()
        return [Partition(topic, index) for index in range(len(self.log.topic(self.cell, topic)))]

    async def open_session(self, name: str) -> MemorySession:
        """See the port."""
        self.check_open()
        return MemorySession(self, name, self.log.take_over(self.cell, name))

    async def committed(self, session: str, partition: Partition) -> Position:
        """How far a session has come, without taking it over; `Position(0)` when there is none."""
        self.check_open()
        return self.log.position(self.cell, session, partition)

    async def reader(self, starts: Mapping[Partition, int]) -> MemoryReader:
        """See the port."""
        self.check_open()
        for partition in starts:
            self.log.messages(self.cell, partition)
        reader = MemoryReader(self, starts)
        self._readers.add(reader)
        return reader

    async def append(self, outputs: Sequence[Outgoing]) -> None:
        """See the port."""
        self.check_open()
        self.log.append(self.cell, outputs)

    async def end_offset(self, partition: Partition) -> int:
        """See the port."""
        self.check_open()
        return self.log.end(self.cell, partition)

    async def begin_offset(self, partition: Partition) -> int:
        """See the port."""
        self.check_open()
        self.log.messages(self.cell, partition)
        return self.log.begin(self.cell, partition)

    async def archived(self) -> Archived | None:
        """See the port."""
        self.check_open()
        return self.log.archived(self.cell)

    async def give_back(self, befores: Mapping[Partition, int], archived: Archived) -> None:
        """See the port."""
        self.check_open()
        self.log.give_back(self.cell, befores, archived)

    async def now_s(self) -> float | None:
        """See the port's `TellsTime`."""
        return whole_microseconds(steady_s())

    async def close(self) -> None:
        """See the port."""
        self._closed = True
        for reader in self._readers:
            await reader.close()

    def check_open(self) -> None:
        """Raises BusError when the bus was closed."""
        if self._closed:
            raise BusError("the bus is closed")


class MemorySession:
    """See the port's `Session`."""

    def __init__(self, bus: MemoryBus, name: str, epoch: int) -> None:
        self._bus, self._name, self._epoch = bus, name, epoch
        self._closed = False

    async def position(self, partition: Partition) -> Position:
        """See the port."""
        self._bus.check_open()
        return self._bus.log.position(self._bus.cell, self._name, partition)

    async def commit(
        self, outputs: Sequence[Outgoing], positions: Mapping[Partition, Position] | None = None
    ) -> list[int]:
        """See the port."""
        self._bus.check_open()
        if self._closed:
            raise BusError(f"session {self._name} is closed")
        return self._bus.log.commit(self._bus.cell, self._name, self._epoch, outputs, positions or {})

    async def close(self) -> None:
        """See the port."""
        self._closed = True


class MemoryReader:
    """See the port's `Reader`."""

    def __init__(self, bus: MemoryBus, starts: Mapping[Partition, int]) -> None:
        self._bus, self._next = bus, dict(starts)
        self._closed = False
        self._appended = asyncio.Event()
        bus.log.waiting.add(self._appended)

    async def next_batch(self, max_messages: int, timeout_s: float) -> list[Message]:
        """See the port."""
        await asyncio.sleep(0)  # a log on which no reader ever waits would starve the other tasks
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self._closed and not self._ready():
                    self._appended.clear()
                    await self._appended.wait()
        if self._closed:
            raise BusError("the reader is closed")
        return self._take(max_messages)

    def _ready(self) -> list[Partition]:
        """The partitions that have grown, those that were served last at the end."""
        return [p for p, start in self._next.items() if self._begin(p, start) < self._bus.log.end(self._bus.cell, p)]

    def _begin(self, partition: Partition, start: int) -> int:
        """Where to read from: `start`, or the oldest message that is kept when that is 0.

        Raises:
            OffsetLost: the start is no longer kept.
        """
        begin = self._bus.log.begin(self._bus.cell, partition)
        if 0 < start < begin:
            place = f"{self._bus.cell}.{partition.topic}/{partition.index}"
            raise OffsetLost(f"{place} begins at {begin}, asked for {start}", {partition: begin})
        return max(start, begin)

    def _take(self, limit: int) -> list[Message]:
        found: list[Message] = []
        for partition in self._ready():
            if len(found) >= limit:
                break
            first = self._begin(partition, self._next.pop(partition)) - self._bus.log.begin(self._bus.cell, partition)
            found += self._bus.log.messages(self._bus.cell, partition)[first : first + limit - len(found)]
            self._next[partition] = found[-1].offset + 1
        return found

    async def close(self) -> None:
        """See the port."""
        self._closed = True
        self._appended.set()
        self._bus.log.waiting.discard(self._appended)
