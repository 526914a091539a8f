"""One cell's log in one file."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from threading import Event

from libs.bus.embedded.address import Address
from libs.bus.embedded.doorbell import Doorbell
from libs.bus.embedded.keeper import Keeper
from libs.bus.embedded.lane import Lane
from libs.bus.embedded.lookup import Lookup
from libs.bus.embedded.reader import EmbeddedReader
from libs.bus.embedded.remover import remove
from libs.bus.embedded.session import EmbeddedSession
from libs.bus.embedded.writer import Appended, Writer
from libs.bus.limits import check_positions
from libs.bus.port import Archived, BusError, BusUnavailable, Outgoing, Partition, Position, Room, TopicLayout
from libs.contracts.base import Topic


class EmbeddedBus:
    """See the port's `Bus`.

    SQLite's calls run in threads: one that reads, one that writes (none if the log is opened for reading only),
    and one that keeps house when there is something to keep. To be used within the event loop that opened it.
    """

    def __init__(
        self, address: Address, cell: str, reading: Lane[Lookup], writing: Lane[Writer] | None, stopping: Event
    ) -> None:
        """Use `connect`."""
        self.cell = cell
        self._path = address.path
        self._reading, self._writing, self._stopping = reading, writing, stopping
        self._doorbell = Doorbell(address.path.with_name(address.path.name + ".wake"))
        self._keeper = Keeper(address.path, cell, address.keep, stopping)
        self._keeping = Lane("log-keeper", self._keeper)

    @classmethod
    async def connect(cls, url: str, cell: str) -> EmbeddedBus:
        """Open a log, and make it if it is new. See `Address` for the URL.

        Raises:
            BusError: the URL cannot be understood, or the file cannot be used; the message says why.
            BusUnavailable: other processes hold the file.
        """
        address, stopping = Address.parse(url), Event()
        writing: Lane[Writer] | None = None
        if not address.read_only:
            writing = await Lane.open("log-writer", lambda: Writer(address.path, cell, stopping))
        try:
            reading = await Lane.open("log-reader", lambda: Lookup(address.path, cell))
        except BaseException:
            if writing is not None:
                await writing.close()
            raise
        return cls(address, cell, reading, writing, stopping)

    async def create_topics(self, layout: TopicLayout) -> None:
        """See the port."""
        await self._writer.run(lambda writer: writer.create_topics(layout))

    async def partitions(self, topic: Topic) -> list[Partition]:
        """See the port."""
        return await self._reading.run(lambda lookup: lookup.partitions(topic))

    async def open_session(self, name: str) -> EmbeddedSession:
        """See the port."""
        holder = await self._writer.run(lambda writer: writer.take_over(name))
        return EmbeddedSession(name, holder, self._reading, self._append)

    async def committed(self, session: str, partition: Partition) -> Position:
        """How far a session has come, without taking it over; `Position(0)` when there is none."""
        return await self._reading.run(lambda lookup: lookup.position(session, partition))

    async def lend_session(self, name: str, claim: str) -> int:
        """See the port's `LendsSessions`."""
        return await self._writer.run(lambda writer: writer.lend(name, claim))

    async def commit_lent(
        self,
        name: str,
        epoch: int,
        number: int,
        outputs: Sequence[Outgoing],
        positions: Mapping[Partition, Position],
    ) -> list[int]:
        """See the port's `LendsSessions`."""
        check_positions(positions)
        appended = await self._append(lambda writer: writer.commit_lent(name, epoch, number, outputs, positions))
        return appended.offsets

    async def reader(self, starts: Mapping[Partition, int]) -> EmbeddedReader:
        """See the port."""
        partitions = list(starts)
        ids = await self._reading.run(lambda lookup: lookup.ids(partitions))
        if self._writing is not None:
            self._doorbell.listen()
        places = {p: (partition_id, starts[p]) for p, partition_id in zip(partitions, ids, strict=True)}
        return EmbeddedReader(places, self._reading, self._doorbell)

    async def append(self, outputs: Sequence[Outgoing]) -> None:
        """See the port. All of them or none; an order or a fact is on the disk when this returns."""
        await self._append(lambda writer: writer.append(outputs))

    async def end_offset(self, partition: Partition) -> int:
        """See the port."""
        return await self._reading.run(lambda lookup: lookup.end_offset(partition))

    async def begin_offset(self, partition: Partition) -> int:
        """See the port."""
        return await self._reading.run(lambda lookup: lookup.begin_offset(partition))

    async def archived(self) -> Archived | None:
        """See the port."""
        return await self._reading.run(lambda lookup: lookup.archived())

    async def give_back(self, befores: Mapping[Partition, int], archived: Archived) -> None:
        """See the port. Other writers get their turn between parts of it; at the end the file shrinks."""
        await self._writer.run(lambda _: remove(self._path, self.cell, self._stopping, befores, archived))

    async def now_s(self) -> float | None:
        """See the port's `TellsTime`."""
        return await self._reading.run(lambda lookup: lookup.now_s())

    async def room(self) -> Room:
        """See the port."""
        try:
            free = await self._reading.run(lambda _: shutil.disk_usage(self._path.parent).free)
        except OSError as error:
            raise BusUnavailable(f"log {self._path}: its disk does not tell what is free ({error})") from error
        return Room(str(self._path), free)

    async def close(self) -> None:
        """See the port. Readers that wait are told; what is being written is written to its end."""
        self._stopping.set()
        await self._reading.close()
        self._doorbell.stop_listening()
        if self._writing is not None:
            await self._writing.close()
        await self._keeping.close()
        self._doorbell.close()

    @property
    def _writer(self) -> Lane[Writer]:
        if self._writing is None:
            raise BusError(f"log {self._path} is open for reading only")
        return self._writing

    async def _append(self, work: Callable[[Writer], Appended]) -> Appended:
        """Do a transaction, and see to what follows from it in the same thread: also when the caller is cancelled."""

        def append(writer: Writer) -> Appended:
            appended = work(writer)
            if appended.counts:
                self._doorbell.ring(appended.counts)
            if self._keeper.note(appended):
                self._keeping.begin(Keeper.work)
            return appended

        return await self._writer.run(append)
