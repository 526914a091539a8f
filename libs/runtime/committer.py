"""A session that outlasts a log which comes and goes: nothing is committed twice, nothing is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence

from libs.bus.port import (
    Bus,
    BusError,
    BusUnavailable,
    Fenced,
    OutcomeUnknown,
    Outgoing,
    Partition,
    Position,
    Session,
)
from libs.runtime.log import fields
from libs.runtime.patience import Patience

log = logging.getLogger(__name__)


class Committer:
    """The session of one name, and the positions that it has committed."""

    def __init__(self, bus: Bus, name: str, session: Session, committed: dict[Partition, Position]) -> None:
        self._bus, self._name, self._session = bus, name, session
        self._stop = asyncio.Event()
        self.patience = Patience(self._stop)
        self.committed = committed
        """{partition: position} as the log has it."""

    @classmethod
    async def open(
        cls,
        bus: Bus,
        name: str,
        partitions: Iterable[Partition],
        stop: asyncio.Event,
        patience: Patience | None = None,
    ) -> Committer:
        """Take over the session of this name (an older instance is fenced) and ask where it stands.

        Raises:
            StopRequested: asked to stop while the log could not be reached.
        """
        patience = patience or Patience(stop)
        session = await patience.outlast(lambda: bus.open_session(name), f"open session {name}")
        committer = cls(bus, name, session, {})
        committer._stop, committer.patience = stop, patience
        committer.committed = await committer._positions(partitions)
        return committer

    async def commit(self, outputs: Sequence[Outgoing], positions: Mapping[Partition, Position]) -> None:
        """Append `outputs` and move to `positions`, exactly once, however long the log is away.

        Raises:
            Fenced: another instance has taken over.
            MessageTooLarge: an output is too large for the log; nothing was appended.
            StopRequested: asked to stop while the log could not be reached; nothing was appended.
            BusError: the log has forgotten the session's position while a commit was in doubt; a new start finds out.
            ValueError: no position changes, so that a commit in doubt could not be told from none.
        """
        if all(self.committed[partition] == position for partition, position in positions.items()):
            raise ValueError(f"session {self._name}: a commit must change a position; it has {positions}")
        while True:
            try:
                await self._session.commit(outputs, positions)
                break
            except OutcomeUnknown as error:
                await self.patience.wait("commit", error)
                if await self._has_happened(positions):
                    break
            except BusUnavailable as error:
                await self.patience.wait("commit", error)
        self.patience.over()
        self.committed.update(positions)

    async def commit_numbered(self, outputs: Sequence[Outgoing], offsets: Mapping[Partition, int]) -> None:
        """As `commit`, for sessions that use no note of their own: it holds the running number of the commit.

        So outputs may be committed without any offset that moves.
        """
        number = str(1 + max((int(position.metadata or 0) for position in self.committed.values()), default=0))
        if not offsets:
            first = next(iter(self.committed))
            offsets = {first: self.committed[first].next_offset}
        await self.commit(outputs, {partition: Position(offset, number) for partition, offset in offsets.items()})

    async def _has_happened(self, wanted: Mapping[Partition, Position]) -> bool:
        """Open the session anew, which settles the commit in doubt, and compare positions."""
        what = f"reopen session {self._name}"
        self._session = await self.patience.outlast(lambda: self._bus.open_session(self._name), what)
        found = await self._positions(wanted)
        happened = found == wanted
        before = {partition: self.committed[partition] for partition in wanted}
        if not happened and found != before:
            if any(found[partition] == Position(0) != before[partition] for partition in wanted):
                raise BusError(
                    f"session {self._name}: the log has forgotten its position, which was {before}, while a commit was "
                    "in doubt; a new start finds out from the session's own records"
                )
            raise Fenced(f"session {self._name}: another instance has moved its position to {found}")
        log.warning("the commit in doubt was settled", extra=fields(session=self._name, happened=happened))
        return happened

    async def _positions(self, partitions: Iterable[Partition]) -> dict[Partition, Position]:
        async def positions() -> dict[Partition, Position]:
            return {partition: await self._session.position(partition) for partition in wanted}

        wanted = list(partitions)
        return await self.patience.outlast(positions, f"read the positions of session {self._name}")

    async def close(self) -> None:
        """End the session; a log that is away does not hold us."""
        try:
            await self._session.close()
        except BusError as error:
            log.warning("session not closed in order", extra=fields(session=self._name, error=error))
