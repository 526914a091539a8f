"""The agent's side of a session: from the gateway's signed request to its end.

GET /session?job=…&attempt=…&session=…&kind=exec&rank=…         a command or a terminal, as the first message says
GET /session?job=…&attempt=…&session=…&kind=forward             stays for as long as the client forwards
GET /session?job=…&attempt=…&session=…&kind=connection&port=…   one connection to a port of this node
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterable
from urllib.parse import parse_qs, urlsplit

import msgspec

from libs.contracts.sessions import Exited, Start, from_client
from torch_agent.sessions.entering import Entrance, NotEntered, Room
from torch_agent.sessions.forwarding import Tunnel, connected, stay
from torch_agent.sessions.running import Running
from torch_agent.sessions.websocket import NoWebSocket, WebSocket, ready

log = logging.getLogger(__name__)

START_S = 60.0
"""How long the gateway may take to put the session on the log."""


def serve(entrance: Entrance, connection: socket.socket, target: str, headers: Iterable[tuple[str, str]]) -> None:
    """Answer one request; returns when its session is over.

    Raises:
        NotEntered: there is nothing to go into, or the request is none; nothing has been answered yet.
    """
    fields = {name: values[0] for name, values in parse_qs(urlsplit(target).query).items()}
    try:
        job_id, attempt, session_id, kind = fields["job"], int(fields["attempt"]), fields["session"], fields["kind"]
        rank, port = int(fields.get("rank", 0)), int(fields.get("port", 0))
    except (KeyError, ValueError):
        raise NotEntered(400, "expected job, attempt, session and kind") from None
    with entrance.room(job_id, attempt) as room:
        entrance.use(session_id)
        server = connected(port) if kind == "connection" else None
        try:
            client = WebSocket(connection, target, headers)
        except NoWebSocket as error:
            if server is not None:
                server.close()
            raise NotEntered(400, str(error)) from None
        log.info("session %s (%s) in %s.%d", session_id, kind, job_id, attempt)
        try:
            if server is not None:
                Tunnel(client, server, room).run()
            elif kind == "forward":
                stay(client, room)
            else:
                _run(client, room, rank, session_id)
        except msgspec.DecodeError as error:
            log.warning("session %s: a message of the client cannot be read: %s", session_id, error)
            client.send(Exited(note=f"a message cannot be read: {error}"))
        finally:
            client.close()
            log.info("session %s is over", session_id)


def _run(client: WebSocket, room: Room, rank: int, session_id: str) -> None:
    messages = _first(client)
    start = from_client.decode(messages.pop(0)) if messages else None
    if not isinstance(start, Start):
        return
    term = start.terminal.term if start.terminal is not None else None
    try:
        spec = room.spec(start.command, rank=rank, session_id=session_id, term=term)
        running = Running(client, room, start, spec)
    except (NotEntered, OSError) as error:
        client.send(Exited(note=f"the session cannot be started: {error}"))
        return
    running.run(messages)


def _first(client: WebSocket) -> list[str | bytes]:
    """The first messages; none when the client has left, or takes too long."""
    deadline = time.monotonic() + START_S
    while not client.is_over and (left_s := deadline - time.monotonic()) > 0:
        ready([client], [], left_s)
        if messages := client.receive():
            return messages
    return []
