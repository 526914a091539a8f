"""A bus that forgets positions, as a broker does some time after their last commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from libs.bus.port import Bus, Message, Outgoing, Partition, Position, Reader, Session
from libs.contracts.wire import parse_rfc3339
from libs.testing.passing import PassingBus


def dated(message: Message) -> Message:
    """The message as if the log had taken it when its source made it."""
    said = dict(message.headers).get("ce_time")
    return message if said is None else replace(message, appended_at_s=parse_rfc3339(said.decode()))


class ForgetfulBus(PassingBus):
    """Passes everything on to a real bus, but has no position that was committed before it was told to forget.

    What it reads counts as appended at the time of the event in it: a log that took days to write, in a moment.
    """

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self._known: set[tuple[str, Partition]] | None = None
        """Positions committed since; None: nothing has been forgotten."""

    def forget(self) -> None:
        """No session has a position any more, until it commits one."""
        self._known = set()

    def knows(self, session: str, partition: Partition) -> bool:
        """Whether the position has been committed since."""
        return self._known is None or (session, partition) in self._known

    def learn(self, session: str, positions: Mapping[Partition, Position]) -> None:
        """Positions have been committed."""
        if self._known is not None:
            self._known.update((session, partition) for partition in positions)

    async def open_session(self, name: str) -> Session:
        """As the bus."""
        return _Session(self, name, await self.bus.open_session(name))

    async def reader(self, starts: Mapping[Partition, int]) -> Reader:
        """As the bus."""
        return _Reader(await self.bus.reader(starts))


class _Session:
    def __init__(self, bus: ForgetfulBus, name: str, session: Session) -> None:
        self._bus, self._name, self._session = bus, name, session

    async def position(self, partition: Partition) -> Position:
        found = await self._session.position(partition)
        return found if self._bus.knows(self._name, partition) else Position(0)

    async def commit(
        self, outputs: Sequence[Outgoing], positions: Mapping[Partition, Position] | None = None
    ) -> list[int]:
        offsets = await self._session.commit(outputs, positions)
        self._bus.learn(self._name, positions or {})
        return offsets

    async def close(self) -> None:
        await self._session.close()


class _Reader:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def next_batch(self, max_messages: int, timeout_s: float) -> list[Message]:
        return [dated(message) for message in await self._reader.next_batch(max_messages, timeout_s)]

    async def close(self) -> None:
        await self._reader.close()
