"""Sessions inside jobs: messages between a client and an agent, passed on as they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from libs.contracts.read_models import NodeRow
from libs.contracts.sessions import Exited, text_of, to_client

CUT = "the connection to the node was cut"


@dataclass(frozen=True, kw_only=True)
class Forward:
    """A session in which connections to a port of a node may be opened."""

    job_id: str
    attempt: int
    node: NodeRow
    port: int
    opened_by: str
    connections: set[asyncio.Task[Exited | None]] = field(default_factory=set)


class Forwards:
    """Those that are open."""

    def __init__(self) -> None:
        self._open: dict[str, Forward] = {}

    def get(self, session_id: str) -> Forward | None:
        """None: there is none of this id, or it is over."""
        return self._open.get(session_id)

    @asynccontextmanager
    async def opened(self, session_id: str, forward: Forward) -> AsyncIterator[None]:
        """Open; its connections end with it."""
        self._open[session_id] = forward
        try:
            yield
        finally:
            del self._open[session_id]
            for connection in forward.connections:
                connection.cancel()
            await asyncio.gather(*forward.connections, return_exceptions=True)


async def relay(client: WebSocket, agent: ClientConnection) -> Exited | None:
    """Pass messages on in both directions until one side ends; the other is ended, too.

    Returns:
        How the session has ended, as the client was told; None when it has left before.
    """
    passing = _Passing(client, agent)
    inwards, outwards = asyncio.create_task(passing.inwards()), asyncio.create_task(passing.outwards())
    try:
        await asyncio.wait((inwards, outwards), return_when=asyncio.FIRST_COMPLETED)
        return passing.ended
    finally:
        for direction in (inwards, outwards):
            direction.cancel()
        await asyncio.gather(inwards, outwards, return_exceptions=True)


class _Passing:
    """Two ends of a session."""

    def __init__(self, client: WebSocket, agent: ClientConnection) -> None:
        self._client, self._agent = client, agent
        self.ended: Exited | None = None

    async def inwards(self) -> None:
        try:
            while True:
                message = await self._client.receive()
                if message["type"] == "websocket.disconnect":
                    return
                data = message.get("bytes")
                await self._agent.send(message["text"] if data is None else data)
        except ConnectionClosed:
            await asyncio.Future()  # what the agent has said last is still being passed on

    async def outwards(self) -> None:
        try:
            async for message in self._agent:
                if isinstance(message, bytes):
                    await self._client.send_bytes(message)
                else:
                    self.ended = _exited(message) or self.ended
                    await self._client.send_text(message)
        except WebSocketDisconnect:
            return
        except ConnectionClosed:
            if self.ended is None:
                self.ended = Exited(note=CUT)
                with suppress(WebSocketDisconnect):
                    await self._client.send_text(text_of(self.ended))


def _exited(message: str) -> Exited | None:
    try:
        found = to_client.decode(message)
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, Exited) else None
