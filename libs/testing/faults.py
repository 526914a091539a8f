"""A bus that breaks on command: every call of a shell is a numbered moment at which a test can let it fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from libs.bus.connect import connect
from libs.bus.port import (
    Bus,
    Message,
    OutcomeUnknown,
    Outgoing,
    Partition,
    Position,
    Reader,
    Session,
    TopicLayout,
)
from libs.runtime.clock import Clock
from libs.testing.forgetful import dated
from libs.testing.passing import PassingBus


class Crash(Exception):
    """The process is dead from here on: nothing of it may touch the log any more."""


Fault = Callable[[], Exception]


class Faults:
    """Counts the moments of a run and lets chosen ones fail."""

    def __init__(self) -> None:
        self.moments: list[str] = []
        self._at: dict[int, Fault] = {}
        self._named: dict[str, list[Fault]] = {}
        self.dead = False

    def crash_at(self, moment: int) -> None:
        """Crash at this moment, counted from 0."""
        self._at[moment] = self._crash

    def fail(self, name: str, error: Exception) -> None:
        """Raise `error` the next time that a moment of this name comes."""
        self._named.setdefault(name, []).append(lambda: error)

    def revive(self) -> None:
        """The next instance may use the bus."""
        self.dead = False

    def moment(self, name: str) -> None:
        """A shell is here."""
        if self.dead:
            raise Crash(name)
        number = len(self.moments)
        self.moments.append(name)
        waiting = self._named.get(name)
        fault = self._at.get(number) or (waiting.pop(0) if waiting else None)
        if fault is not None:
            raise fault()

    def _crash(self) -> Exception:
        self.dead = True
        return Crash(self.moments[-1])


class FaultyBus(PassingBus):
    """Passes everything on to a real bus, through the moments of `faults`.

    Moments: `open`, `position`, `read`, `read.done`, `commit`, `commit.done`. An OutcomeUnknown at
    `commit.done` comes after the commit; one at `commit`, in its place.
    """

    def __init__(self, bus: Bus, faults: Faults) -> None:
        super().__init__(bus)
        self.faults = faults
        self.positions: dict[str, dict[Partition, Position]] = {}
        """{session: positions} as committed through this bus."""
        self.clock: Clock | None = None
        """The log's clock and that of all sources, in the hand of a test; None: the log has its own."""
        self._changed = asyncio.Condition()

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until a condition holds, looking after every commit."""
        async with self._changed:
            await self._changed.wait_for(reached)

    async def open_session(self, name: str) -> Session:
        """As the bus; moment `open`."""
        self.faults.moment("open")
        return _Session(self, name, await self.bus.open_session(name))

    async def reader(self, starts: Mapping[Partition, int]) -> Reader:
        """As the bus."""
        return _Reader(self, await self.bus.reader(starts))

    async def now_s(self) -> float | None:
        """The log's time."""
        return self.clock.now_s() if self.clock is not None else None

    async def committed(self, session: str, positions: Mapping[Partition, Position]) -> None:
        """Note a commit and wake what waits for it."""
        async with self._changed:
            self.positions.setdefault(session, {}).update(positions)
            self._changed.notify_all()


class _Session:
    def __init__(self, bus: FaultyBus, name: str, session: Session) -> None:
        self._bus, self._name, self._session = bus, name, session

    async def position(self, partition: Partition) -> Position:
        self._bus.faults.moment("position")
        return await self._session.position(partition)

    async def commit(
        self, outputs: Sequence[Outgoing], positions: Mapping[Partition, Position] | None = None
    ) -> list[int]:
        self._bus.faults.moment("commit")
        offsets = await self._session.commit(outputs, positions)
        await self._bus.committed(self._name, positions or {})
        self._bus.faults.moment("commit.done")
        return offsets

    async def close(self) -> None:
        await self._session.close()


class _Reader:
    def __init__(self, bus: FaultyBus, reader: Reader) -> None:
        self._bus, self._faults, self._reader = bus, bus.faults, reader

    async def next_batch(self, max_messages: int, timeout_s: float) -> list[Message]:
        self._faults.moment("read")
        messages = await self._reader.next_batch(max_messages, timeout_s)
        if messages:
            self._faults.moment("read.done")
        return messages if self._bus.clock is None else [dated(message) for message in messages]

    async def close(self) -> None:
        await self._reader.close()


def unknown() -> OutcomeUnknown:
    """The log went away during the commit."""
    return OutcomeUnknown("connection lost during commit (injected)")


async def crashing_bus(crash_at: int | None = None) -> FaultyBus:
    """A log in memory, with its topics, under which the process dies at this moment; None: at none."""
    faults = Faults()
    if crash_at is not None:
        faults.crash_at(crash_at)
    bus = FaultyBus(await connect("memory:", "t"), faults)
    await bus.create_topics(TopicLayout())
    return bus
