"""The cell's log for agents on machines that reach only the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from libs.bus.http.protocol import (
    LONGEST_POLL_S,
    MOST_MESSAGES,
    AppendQuestion,
    CommitAnswer,
    CommitQuestion,
    Done,
    ExtentAnswer,
    ExtentQuestion,
    Hello,
    PositionAnswer,
    PositionQuestion,
    ReadAnswer,
    ReadQuestion,
    SessionAnswer,
    SessionQuestion,
    TopicAnswer,
    TopicQuestion,
)
from libs.bus.port import Bus, BusError, BusUnavailable, LendsSessions, Message, Outgoing, Partition, Reader
from libs.contracts import wire
from libs.contracts.placement import OWNER as PLACEMENT
from libs.node.lease import DEFAULTS, LeaseTerms
from services.gateway.adapters.tokens import Principal
from services.gateway.core.ownership import Ownership


def own(caller: Principal) -> Ownership:
    """What the token of a request is for."""
    return Ownership(caller.is_for_node, caller.name)


class AgentsBus:
    """Answers the questions of `libs/bus/http/protocol.py`. It remembers nothing: all state is on the log.

    All methods raise NotOwned for what is not the caller's, and the port's errors.

    Args:
        bus: the gateway's.
        stop: reads wait no longer.
        ownership: what a caller may read and append.
        lease: the terms of the cell.
    """

    def __init__(
        self,
        bus: Bus,
        stop: asyncio.Event,
        ownership: Callable[[Principal], Ownership] = own,
        lease: LeaseTerms = DEFAULTS,
    ) -> None:
        self._bus, self._stop, self._ownership, self._lease = bus, stop, ownership, lease

    async def hello(self) -> Hello:
        """Which log this is."""
        return Hello(
            cell=self._bus.cell,
            archived=await self._bus.archived(),
            node_timeout_s=self._lease.node_timeout_s,
            lease_margin_s=self._lease.margin_s,
        )

    async def topic(self, question: TopicQuestion) -> TopicAnswer:
        """How a topic is cut."""
        return TopicAnswer(partitions=len(await self._bus.partitions(question.topic)))

    async def extent(self, question: ExtentQuestion) -> ExtentAnswer:
        """Where a partition begins and ends."""
        at = question.partition
        return ExtentAnswer(begin=await self._bus.begin_offset(at), end=await self._bus.end_offset(at))

    async def read(self, caller: Principal, question: ReadQuestion) -> ReadAnswer:
        """Wait for messages, and leave out what is not for the caller."""
        if any(start.offset < 0 for start in question.starts):
            raise BusError("expected offsets of 0 or more")
        reader = await self._bus.reader({start.partition: start.offset for start in question.starts})
        most = min(max(question.max_messages, 1), MOST_MESSAGES)
        try:
            found = await self._next_batch(reader, most, min(max(0.0, question.timeout_s), LONGEST_POLL_S))
        finally:
            await reader.close()
        return ReadAnswer(messages=visible(self._ownership(caller), found))

    async def _next_batch(self, reader: Reader, most: int, wait_s: float) -> list[Message]:
        reading = asyncio.ensure_future(reader.next_batch(most, wait_s))
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((reading, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                raise BusUnavailable("the gateway is ending")
            return reading.result()
        finally:
            for task in (reading, stopping):
                task.cancel()
            await asyncio.gather(reading, stopping, return_exceptions=True)

    async def append(self, caller: Principal, question: AppendQuestion) -> Done:
        """Append telemetry or lines of a node's."""
        await self._bus.append(_own(self._ownership(caller), question.outputs))
        return Done()

    async def session(self, caller: Principal, question: SessionQuestion) -> SessionAnswer:
        """Give a session to the caller."""
        self._ownership(caller).require_session(question.session)
        return SessionAnswer(epoch=await self._lender.lend_session(question.session, question.claim))

    async def position(self, caller: Principal, question: PositionQuestion) -> PositionAnswer:
        """How far a session of the caller's has come, or placement."""
        if question.session != PLACEMENT:  # an agent that was silent waits for what placement says to that
            self._ownership(caller).require_session(question.session)
        return PositionAnswer(position=await self._lender.committed(question.session, question.partition))

    async def commit(self, caller: Principal, question: CommitQuestion) -> CommitAnswer:
        """Append facts of a node's and move positions."""
        ownership = self._ownership(caller)
        ownership.require_session(question.session)
        outputs = _own(ownership, question.outputs, question.session)
        positions = {move.partition: move.position for move in question.moves}
        offsets = await self._lender.commit_lent(question.session, question.epoch, question.number, outputs, positions)
        return CommitAnswer(offsets=offsets)

    @property
    def _lender(self) -> LendsSessions:
        if not isinstance(self._bus, LendsSessions):
            raise BusError(
                "this cell's log serves agents itself: they join it by --bus, with the address that the services have"
            )
        return self._bus


def _own(ownership: Ownership, outputs: Sequence[Outgoing], session: str | None = None) -> list[Outgoing]:
    """The records of a caller, as they are appended: the log dates them, those of older agents too.

    Raises:
        NotOwned: one of them is no fact of the caller's node.
    """
    for output in outputs:
        ownership.require_own(output.topic, output.key, list(output.headers), output.value, session)
    return [replace(output, headers=wire.dated_by_log(list(output.headers), output.value)) for output in outputs]


def visible(ownership: Ownership, messages: Sequence[Message]) -> list[Message]:
    """Those that a caller may see; where the last one of a partition is not among them, that one without content."""
    last: dict[Partition, Message] = {message.partition: message for message in messages}
    found: list[Message] = []
    for message in messages:
        if ownership.sees(message.partition.topic, message.key, list(message.headers)):
            found.append(message)
        elif message is last[message.partition]:
            found.append(replace(message, key="", headers=[], value=b""))
    return found
