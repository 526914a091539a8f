"""One cell's log, through its gateway."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from libs.bus.http.connection import Connection
from libs.bus.http.protocol import (
    AppendQuestion,
    Done,
    ExtentAnswer,
    ExtentQuestion,
    Hello,
    KeyAnswer,
    KeyQuestion,
    PositionAnswer,
    PositionQuestion,
    SessionAnswer,
    SessionQuestion,
    TopicAnswer,
    TopicQuestion,
)
from libs.bus.http.reader import HttpReader
from libs.bus.http.session import HttpSession
from libs.bus.http.token import JoinToken, pinned
from libs.bus.limits import check_sizes
from libs.bus.port import Archived, BusError, Outgoing, Partition, Position, TopicLayout
from libs.contracts.base import Topic


class HttpBus:
    """See the port's `Bus`, without what is an operator's: topics are made, and old records removed, on the log itself.

    What a token is not for is refused by the gateway (`Refused`): an agent's reads and writes what is its node's.
    """

    def __init__(self, connection: Connection, cell: str) -> None:
        """Use `connect`."""
        self.cell = cell
        self._connection = connection
        self._counts: dict[Topic, int] = {}
        self._claims: dict[str, str] = {}
        """{session: the claim by which it was asked for} until there is an answer: one that is late changes nothing."""
        self._closed = False

    @classmethod
    async def connect(cls, url: str, cell: str, token: str = "") -> HttpBus:
        """Ask a gateway for the log of its cell.

        Args:
            url: `https://HOST:PORT`, or `http://HOST:PORT` on a network that is trusted.
            cell: which it is expected to have.
            token: see `JoinToken`; empty: none.

        Raises:
            BusError: the URL cannot be used, or the gateway has another cell.
            Refused: another certificate than the token's, or the token is not for this.
            BusUnavailable: no gateway answers.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
            raise BusError(f"bus url {url!r}: expected https://HOST:PORT")
        base, known = f"{parts.scheme}://{parts.netloc}", JoinToken.parse(token)
        verified = parts.scheme == "https"
        context = await asyncio.to_thread(pinned, base, known.fingerprint) if verified and known.fingerprint else None
        bus = cls(Connection(base, known.secret, context if context is not None else verified), cell)
        try:
            found = (await bus._hello()).cell
            if found != cell:
                raise BusError(f"the gateway at {base} has the cell {found!r}, expected {cell!r}  try: --cell {found}")
        except BaseException:
            await bus.close()
            raise
        return bus

    async def _hello(self) -> Hello:
        return await self._connection.ask("/hello", Done(), Hello)

    async def create_topics(self, layout: TopicLayout) -> None:
        """Refused: see the class."""
        raise BusError("topics are made on the log itself, and not through a gateway")

    async def partitions(self, topic: Topic) -> list[Partition]:
        """See the port."""
        return [Partition(topic, index) for index in range(await self._count(topic))]

    async def _count(self, topic: Topic) -> int:
        self._check_open()
        if topic not in self._counts:  # it never changes
            found = await self._connection.ask("/topic", TopicQuestion(topic=topic), TopicAnswer)
            self._counts[topic] = found.partitions
        return self._counts[topic]

    async def open_session(self, name: str) -> HttpSession:
        """See the port."""
        claim = self._claims.setdefault(name, secrets.token_urlsafe(16))
        question = SessionQuestion(session=name, claim=claim)
        found = await self._connection.ask("/session", question, SessionAnswer)
        del self._claims[name]
        return HttpSession(self._connection, name, found.epoch)

    async def committed(self, session: str, partition: Partition) -> Position:
        """See the port's `TellsPositions`."""
        question = PositionQuestion(session=session, partition=partition)
        return (await self._connection.ask("/position", question, PositionAnswer)).position

    async def reader(self, starts: Mapping[Partition, int]) -> HttpReader:
        """See the port."""
        for partition in starts:
            count = await self._count(partition.topic)
            if not 0 <= partition.index < count:
                place = f"topic {self.cell}.{partition.topic}"
                raise BusError(f"{place} has partitions 0 to {count - 1}, not {partition.index}")
        return HttpReader(self._connection, starts)

    async def append(self, outputs: Sequence[Outgoing]) -> None:
        """See the port."""
        check_sizes(outputs)
        await self._connection.ask("/append", AppendQuestion(outputs=list(outputs)), Done)

    async def end_offset(self, partition: Partition) -> int:
        """See the port."""
        return (await self._extent(partition)).end

    async def begin_offset(self, partition: Partition) -> int:
        """See the port."""
        return (await self._extent(partition)).begin

    async def _extent(self, partition: Partition) -> ExtentAnswer:
        return await self._connection.ask("/extent", ExtentQuestion(partition=partition), ExtentAnswer)

    async def archived(self) -> Archived | None:
        """See the port."""
        return (await self._hello()).archived

    async def give_back(self, befores: Mapping[Partition, int], archived: Archived) -> None:
        """Refused: see the class."""
        raise BusError("old records are removed on the log itself, and not through a gateway")

    async def node_key(self, node_id: str) -> bytes | None:
        """See the port's `TellsNodeKeys`."""
        return (await self._connection.ask("/key", KeyQuestion(node_id=node_id), KeyAnswer)).key

    async def lease(self) -> tuple[float, float] | None:
        """See the port's `TellsLeases`."""
        found = await self._hello()
        if found.node_timeout_s is None or found.lease_margin_s is None:
            return None
        return found.node_timeout_s, found.lease_margin_s

    def use_token(self, token: str) -> None:
        """See the port's `TakesTokens`. The gateway's certificate stays the one that the first token has said."""
        self._connection.use_secret(JoinToken.parse(token).secret)

    async def close(self) -> None:
        """See the port."""
        self._closed = True
        await self._connection.close()

    def _check_open(self) -> None:
        if self._closed:
            raise BusError(f"the bus at {self._connection.url} is closed")
