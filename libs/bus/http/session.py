"""The exclusive writer of one name, held through the gateway."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from libs.bus.http.connection import Connection
from libs.bus.http.protocol import CommitAnswer, CommitQuestion, Move, PositionAnswer, PositionQuestion
from libs.bus.limits import check_positions, check_sizes
from libs.bus.port import BusError, BusUnavailable, OutcomeUnknown, Outgoing, Partition, Position

IN_DOUBT_S = 60.0
"""How long a commit without an answer is repeated: a gateway that was killed is back long before."""


class HttpSession:
    """See the port's `Session`."""

    def __init__(self, connection: Connection, name: str, epoch: int) -> None:
        self._connection, self._name, self._epoch = connection, name, epoch
        self._committed = 0
        self._turn = asyncio.Lock()
        self._closed = False
        self._in_doubt: BusError | None = None

    async def position(self, partition: Partition) -> Position:
        """See the port."""
        question = PositionQuestion(session=self._name, partition=partition)
        return (await self._connection.ask("/position", question, PositionAnswer)).position

    async def commit(
        self, outputs: Sequence[Outgoing], positions: Mapping[Partition, Position] | None = None
    ) -> list[int]:
        """See the port. A commit without an answer is repeated under its number, so that it happens once."""
        moves = dict(positions or {})
        check_sizes(outputs)
        check_positions(moves)
        async with self._turn:
            if self._closed:
                raise BusError(f"session {self._name} is closed")
            if self._in_doubt is not None:
                raise OutcomeUnknown(f"session {self._name} broke earlier and must be opened anew") from self._in_doubt
            if not outputs and not moves:
                return []
            question = CommitQuestion(
                session=self._name,
                epoch=self._epoch,
                number=self._committed + 1,
                outputs=list(outputs),
                moves=[Move(partition=partition, position=at) for partition, at in moves.items()],
            )
            try:
                offsets = await self._until_answered(question)
            except (OutcomeUnknown, asyncio.CancelledError) as error:
                self._in_doubt = BusError(f"a commit has no answer: {error!r}")
                raise
            self._committed += 1
            return offsets

    async def _until_answered(self, question: CommitQuestion) -> list[int]:
        """What the gateway says.

        Raises:
            BusUnavailable: nothing was appended: no attempt has reached a gateway.
            OutcomeUnknown: an attempt may have, and there was no answer for long.
        """
        until_s = time.monotonic() + IN_DOUBT_S
        doubt: OutcomeUnknown | None = None
        while True:
            try:
                return (await self._connection.ask("/commit", question, CommitAnswer)).offsets
            except OutcomeUnknown as error:
                doubt = error
            except BusUnavailable as error:
                if doubt is None:
                    raise
                doubt = OutcomeUnknown(f"{doubt}; since then: {error}")
            if time.monotonic() > until_s:
                raise doubt

    async def close(self) -> None:
        """See the port."""
        self._closed = True
