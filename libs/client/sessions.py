"""Sessions inside a job: a command, a terminal, connections to a port of its node."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import quote, urlencode

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from libs.client.connection import TIMEOUT_S, Connection
from libs.client.errors import ApiError, ClientError, Unreachable
from libs.contracts.sessions import (
    CHUNK_BYTES,
    LARGEST_BYTES,
    STDIN,
    STDOUT,
    EndOfInput,
    EndOfOutput,
    Exited,
    FromClient,
    Notice,
    Opened,
    ToClient,
    text_of,
    to_client,
)

ANSWER_S = 20.0
"""How long a gateway may leave a terminal without an answer before it counts as gone."""


class Session:
    """An open session. What comes in is iterated over: text messages decoded, bytes of streams as they are."""

    def __init__(self, connection: Connection, socket: ClientConnection) -> None:
        self._connection, self._socket = connection, socket

    async def send(self, message: FromClient) -> None:
        """A text message; nothing is sent when the session is over."""
        with suppress(ConnectionClosed):
            await self._socket.send(text_of(message))

    async def send_bytes(self, data: bytes) -> None:
        """Input, at most `CHUNK_BYTES`; returns when there is room for more. Nothing is sent when it is over."""
        with suppress(ConnectionClosed):
            await self._socket.send(bytes([STDIN]) + data)

    async def __aiter__(self) -> AsyncIterator[ToClient | bytes]:
        try:
            async for message in self._socket:
                yield message if isinstance(message, bytes) else to_client.decode(message)
        except ConnectionClosed as error:
            raise Unreachable(f"the gateway at {self._connection.base_url} broke off: {error}") from None
        except msgspec.DecodeError as error:
            raise Unreachable(f"what answers at {self._connection.base_url} speaks another language: {error}") from None


@asynccontextmanager
async def opened(connection: Connection, path: str, *, answers: bool = False, **query: int) -> AsyncIterator[Session]:
    """A session at a path of the gateway; it ends with the block.

    Args:
        answers: it is always read from, so that a gateway which does not answer is gone.

    Raises:
        ApiError: the gateway refuses.
        Unreachable: none answers.
    """
    address = "ws" + connection.base_url.rstrip("/").removeprefix("http") + path
    headers = {"Authorization": f"Bearer {connection.token}"} if connection.token else {}
    try:
        socket = await connect(
            f"{address}?{urlencode(query)}" if query else address,
            additional_headers=headers,
            compression=None,
            open_timeout=TIMEOUT_S,
            max_size=LARGEST_BYTES,
            ping_timeout=ANSWER_S if answers else None,
        )
    except InvalidStatus as error:
        raise ApiError(error.response.status_code, _document(error.response.body)) from None
    except (OSError, TimeoutError, InvalidHandshake, InvalidURI) as error:
        raise Unreachable(f"no gateway answers at {connection.base_url}: {error}") from error
    async with socket:
        yield Session(connection, socket)


def exec_path(job: str) -> str:
    """Where commands and terminals are opened."""
    return f"/v1/jobs/{quote(job, safe='')}/exec"


class Forwarding:
    """Local connections to a port of a job's node. Use `run` once.

    Args:
        port: of the node.
        local: of this machine's loopback address; 0: any free one.
        on_open: told what the gateway says and the local port, once connections are taken.
        on_notice: told what the user is to know.
    """

    def __init__(
        self,
        connection: Connection,
        job: str,
        port: int,
        local: int,
        *,
        rank: int = 0,
        on_open: Callable[[Opened, int], None],
        on_notice: Callable[[str], None],
    ) -> None:
        self._connection, self._job, self._port, self._local, self._rank = connection, job, port, local, rank
        self._on_open, self._on_notice = on_open, on_notice
        self._tasks: set[asyncio.Task[None]] = set()
        self._session_id = ""

    async def run(self) -> str:
        """Until the job's processes on that node have ended. Returns why it is over.

        Raises:
            OSError: the local port cannot be had.
            ApiError: the gateway refuses.
            Unreachable: none answers, or it broke off.
        """
        server = await asyncio.start_server(self._accept, "127.0.0.1", self._local, start_serving=False)
        path = f"/v1/jobs/{quote(self._job, safe='')}/forward/{self._port}"
        try:
            async with opened(self._connection, path, rank=self._rank) as session:
                async for message in session:
                    if isinstance(message, Opened):
                        self._session_id = message.session_id
                        await server.start_serving()
                        self._on_open(message, int(server.sockets[0].getsockname()[1]))
                    elif isinstance(message, Notice):
                        self._on_notice(message.text)
                    elif isinstance(message, Exited):
                        return message.note
            raise Unreachable(f"the gateway at {self._connection.base_url} broke off")
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(task := asyncio.create_task(self._take(reader, writer)))
        task.add_done_callback(self._tasks.discard)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with opened(self._connection, f"/v1/forwards/{self._session_id}") as session:
                await _joined(session, reader, writer)
        except ClientError as error:
            self._on_notice(str(error))
        except OSError:
            pass  # the local side broke off
        finally:
            writer.close()


async def _joined(session: Session, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Both directions, until the node's side is over or either side breaks off."""

    async def inwards() -> None:
        while data := await reader.read(CHUNK_BYTES):
            await session.send_bytes(data)
        await session.send(EndOfInput())

    sending = asyncio.create_task(inwards())
    try:
        async for message in session:
            if isinstance(message, bytes) and message[:1] == bytes([STDOUT]):
                writer.write(message[1:])
                await writer.drain()
            elif isinstance(message, EndOfOutput) and writer.can_write_eof():
                writer.write_eof()
            elif isinstance(message, Exited):
                return
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


def _document(body: bytes | bytearray | None) -> dict[str, object]:
    try:
        document = json.loads(body or b"")
    except ValueError:
        document = {"detail": bytes(body or b"").decode(errors="replace")[:500]}
    return document if isinstance(document, dict) else {"detail": str(document)}
