"""Connections to ports of the node, for the time of a task there."""

from __future__ import annotations

import socket
from contextlib import suppress

from libs.contracts.sessions import (
    CHUNK_BYTES,
    STDIN,
    STDOUT,
    EndOfInput,
    EndOfOutput,
    Exited,
    Notice,
    from_client,
)
from torch_agent.sessions.entering import NotEntered, Process, Room
from torch_agent.sessions.running import LOOK_S, TASK_ENDED
from torch_agent.sessions.websocket import FULL_BYTES, HasDescriptor, WebSocket, ready

CONNECT_S = 10.0
LOOPBACK = ("127.0.0.1", "::1")


def stay(client: WebSocket, room: Room) -> None:
    """Until the client leaves or the task ends, and say what becomes of the task."""
    stood_still = False
    while not client.is_over and not room.is_empty:
        readable, writable = ready([client, *room.living], [client] if client.waits else [], LOOK_S)
        if client in writable:
            client.flush()
        for one in readable:
            if isinstance(one, Process):
                room.ended(one)
            else:
                client.receive()
        if room.stands_still != stood_still:
            stood_still = room.stands_still
            word = "is suspended: its servers do not answer until it goes on" if stood_still else "goes on"
            client.send(Notice(text=f"{room.task.order.job_id} {word}"))
    client.send(Exited(note=TASK_ENDED))


def connected(port: int) -> socket.socket:
    """A connection to a server on this node, as its own processes reach it.

    Raises:
        NotEntered: 409: none listens there.
    """
    for host in LOOPBACK:
        with suppress(OSError):
            return socket.create_connection((host, port), CONNECT_S)
    raise NotEntered(409, f"nothing listens on port {port} there (yet)")


class Tunnel:
    """One connection: what comes from either side goes to the other, ends included."""

    def __init__(self, client: WebSocket, server: socket.socket, room: Room) -> None:
        self._client, self._server, self._room = client, server, room
        server.setblocking(False)
        self._pending = bytearray()
        self._input_ends = self._input_over = self._output_over = False

    def run(self) -> None:
        """Until both directions or the task have ended."""
        with self._server:
            while not self._client.is_over and not self._room.is_empty:
                if self._input_over and self._output_over:
                    return
                self._turn()

    def _turn(self) -> None:
        readers: list[HasDescriptor] = [*self._room.living]
        if len(self._pending) < FULL_BYTES:
            readers.append(self._client)
        if not self._output_over and not self._client.is_full:
            readers.append(self._server)
        writers: list[HasDescriptor] = [self._client] if self._client.waits else []
        if self._pending:
            writers.append(self._server)
        readable, writable = ready(readers, writers, None)
        if self._client in writable:
            self._client.flush()
        if self._server in writable:
            self._write()
        for one in readable:
            if isinstance(one, Process):
                self._room.ended(one)
            elif one is self._server:
                self._read()
            else:
                self._receive()

    def _read(self) -> None:
        try:
            data = self._server.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._client.send_bytes(STDOUT, data)
        else:
            self._output_over = True
            self._client.send(EndOfOutput())

    def _receive(self) -> None:
        for message in self._client.receive():
            if isinstance(message, bytes):
                if message[:1] == bytes([STDIN]):
                    self._pending += message[1:]
            elif isinstance(from_client.decode(message), EndOfInput):
                self._input_ends = True
        self._write()

    def _write(self) -> None:
        try:
            while self._pending:
                del self._pending[: self._server.send(self._pending)]
        except BlockingIOError:
            return
        except OSError:  # it hears no more; what it still has to say is read
            self._pending.clear()
            self._input_over = True
        if self._input_ends and not self._input_over:
            self._input_over = True
            with suppress(OSError):
                self._server.shutdown(socket.SHUT_WR)
