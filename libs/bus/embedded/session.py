"""The exclusive writer of one name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from libs.bus.embedded.lane import Lane
from libs.bus.embedded.lookup import Lookup
from libs.bus.embedded.writer import Appended, Holder, Writer
from libs.bus.limits import check_positions
from libs.bus.port import BusError, Outgoing, Partition, Position

Append = Callable[[Callable[[Writer], Appended]], Awaitable[Appended]]
"""Runs a writer's transaction and tells the others what it has appended."""


class EmbeddedSession:
    """See the port's `Session`."""

    def __init__(self, name: str, holder: Holder, reading: Lane[Lookup], append: Append) -> None:
        self._name, self._holder, self._reading, self._append = name, holder, reading, append
        self._closed = False

    async def position(self, partition: Partition) -> Position:
        """See the port."""
        return await self._reading.run(lambda lookup: lookup.position(self._name, partition))

    async def commit(
        self, outputs: Sequence[Outgoing], positions: Mapping[Partition, Position] | None = None
    ) -> list[int]:
        """See the port."""
        if self._closed:
            raise BusError(f"session {self._name} is closed")
        moves = dict(positions or {})
        check_positions(moves)
        appended = await self._append(lambda writer: writer.commit(self._name, self._holder, outputs, moves))
        return appended.offsets

    async def close(self) -> None:
        """See the port."""
        self._closed = True
