"""The server's side of a WebSocket, over the connection of an HTTP request, without ever waiting for it."""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Iterable
from typing import Protocol

from websockets.exceptions import InvalidState
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from libs.contracts.sessions import CHUNK_BYTES, LARGEST_BYTES, ToClient, text_of

FULL_BYTES = 4 * CHUNK_BYTES
"""Nothing more is read for a receiver that has so much before it."""
GOODBYE_S = 5.0
"""How long the other end may take to answer the end of the session: what is on its way gets there."""


class NoWebSocket(Exception):
    """The request is no handshake; the message says why."""


class HasDescriptor(Protocol):
    """What can be waited for."""

    def fileno(self) -> int:
        """Its descriptor."""
        ...


class WebSocket:
    """Sends from a buffer, and gives whole messages.

    Args:
        connection: nothing behind the request's head has been read from it.
        target: path and query of the request.
        headers: of the request.

    Raises:
        NoWebSocket: the request is no handshake.
    """

    def __init__(self, connection: socket.socket, target: str, headers: Iterable[tuple[str, str]]) -> None:
        self._connection = connection
        self._protocol = ServerProtocol(max_size=LARGEST_BYTES)
        head = "".join(f"{name}: {value}\r\n" for name, value in headers)
        self._protocol.receive_data(f"GET {target} HTTP/1.1\r\n{head}\r\n".encode("latin-1"))
        request = next(iter(self._protocol.events_received()), None)
        if not isinstance(request, Request):
            raise NoWebSocket(f"no WebSocket handshake: {self._protocol.parser_exc}")
        response = self._protocol.accept(request)
        if response.status_code != 101:
            raise NoWebSocket(str(self._protocol.handshake_exc))
        self._protocol.send_response(response)
        self._out, self._parts = bytearray(), bytearray()
        self._broken, self._is_text = False, False
        connection.setblocking(False)
        self._take()

    def fileno(self) -> int:
        """For select."""
        return self._connection.fileno()

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes and nothing more can be sent."""
        return self._broken or self._protocol.state is not State.OPEN

    @property
    def is_full(self) -> bool:
        """Whether the receiver has enough before it."""
        return len(self._out) >= FULL_BYTES

    @property
    def waits(self) -> bool:
        """Whether there is something to be sent."""
        return bool(self._out) and not self._broken

    def send(self, message: ToClient) -> None:
        """A text message. Nothing is sent when the session is over."""
        with contextlib.suppress(InvalidState):
            self._protocol.send_text(text_of(message).encode())
        self._take()

    def send_bytes(self, channel: int, data: bytes) -> None:
        """Bytes of a stream."""
        with contextlib.suppress(InvalidState):
            self._protocol.send_binary(bytes([channel]) + data)
        self._take()

    def flush(self) -> None:
        """Send as much as goes without waiting."""
        try:
            while self.waits:
                del self._out[: self._connection.send(self._out)]
        except BlockingIOError:
            return
        except OSError:
            self._broken = True

    def receive(self) -> list[str | bytes]:
        """The messages that have come: text, or the channel and bytes of a stream."""
        try:
            data = self._connection.recv(CHUNK_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if data:
            self._protocol.receive_data(data)
        else:
            self._broken = True
        messages = [whole for event in self._protocol.events_received() if (whole := self._whole(event)) is not None]
        self._take()
        return messages

    def close(self) -> None:
        """Say goodbye, and wait until what was sent has arrived, as far as the other end is there."""
        with contextlib.suppress(InvalidState):
            self._protocol.send_close(1000)
        self._take()
        deadline = time.monotonic() + GOODBYE_S
        while not self._broken and (self.waits or self._protocol.close_rcvd is None):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return
            readable, writable = ready([self], [self] if self.waits else [], left_s)
            if self in writable:
                self.flush()
            if self in readable:
                self.receive()

    def _take(self) -> None:
        for data in self._protocol.data_to_send():
            self._out += data
        self.flush()

    def _whole(self, event: object) -> str | bytes | None:
        if not isinstance(event, Frame) or event.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return None
        if event.opcode is not Opcode.CONT:
            self._is_text, self._parts = event.opcode is Opcode.TEXT, bytearray()
        self._parts += event.data
        if not event.fin:
            return None
        return self._parts.decode(errors="replace") if self._is_text else bytes(self._parts)


def ready(
    readers: list[HasDescriptor], writers: list[HasDescriptor], wait_s: float | None
) -> tuple[list[HasDescriptor], list[HasDescriptor]]:
    """Those that can be read, and those that can be written; none of both when the time is over."""
    with selectors.PollSelector() as selector:
        wanted: dict[HasDescriptor, int] = dict.fromkeys(readers, selectors.EVENT_READ)
        for one in writers:
            wanted[one] = wanted.get(one, 0) | selectors.EVENT_WRITE
        for one, events in wanted.items():
            selector.register(one, events, one)
        found = [(key.data, events) for key, events in selector.select(wait_s)]
    return (
        [one for one, events in found if events & selectors.EVENT_READ],
        [one for one, events in found if events & selectors.EVENT_WRITE],
    )
