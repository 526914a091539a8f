"""Into a running job: a command, a terminal, connections to a port of its node.

All are WebSockets; what they carry is in `libs/contracts/sessions.py`. A request that is refused is answered with a
problem document instead of the handshake.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import msgspec
from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect
from websockets.asyncio.client import ClientConnection

from libs.bus.port import BusError
from libs.contracts.gateway import JobSessionClosed, JobSessionOpened
from libs.contracts.read_models import JobRow, JobState, NodeRow
from libs.contracts.sessions import LONGEST_COMMAND_BYTES, Exited, Opened, Start, from_client, text_of
from libs.runtime.agents import AgentAway
from services.gateway.adapters.database import ReadModelsAway
from services.gateway.adapters.entering import AgentRefused, enter
from services.gateway.adapters.sessions import Forward, relay
from services.gateway.adapters.tokens import Principal, Scope
from services.gateway.api.callers import refuse_scope, require_tenant, sender
from services.gateway.api.common import append
from services.gateway.api.finding import find_job
from services.gateway.api.holding import holding_node
from services.gateway.core.whereabouts import agent_of
from services.gateway.door import Gateway
from services.gateway.problems import Problem, invalid, not_found, unavailable

log = logging.getLogger(__name__)

router = APIRouter()

_ENDED_LATE = "the client has left"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a session goes, and for which caller."""

    caller: Principal
    job: JobRow
    node: NodeRow
    attempt: int
    rank: int
    session_id: str

    def asked(self, kind: str, **more: int) -> dict[str, str | int]:
        """What the agent is asked for."""
        return {"job": self.job.id, "attempt": self.attempt, "session": self.session_id, "kind": kind, **more}


@router.websocket("/v1/jobs/{job}/exec")
async def execute(socket: WebSocket, job: str) -> None:
    """A command in the environment of a rank, with a terminal (`shell`) or without; the first message says which."""

    async def serve(gateway: Gateway) -> None:
        place = await _place(gateway, socket, job)
        async with _agent(gateway, place.node, place.asked("exec", rank=place.rank)) as agent:
            await socket.accept()
            start = await _start(socket)
            if start is None:
                return
            kind = "exec" if start.terminal is None else "shell"
            async with _audited(gateway, socket, place, kind, command=start.command) as ended:
                await agent.send(text_of(start))
                ended(await relay(socket, agent))

    await _answered(socket, serve)


@router.websocket("/v1/jobs/{job}/forward/{port}")
async def forward(socket: WebSocket, job: str, port: str) -> None:
    """Leave to open connections to a port of the node that has the job, for as long as this WebSocket stays."""

    async def serve(gateway: Gateway) -> None:
        if not (port.isdecimal() and 0 < int(port) < 65536):
            raise invalid("port", "expected a number from 1 to 65535", port, where="path")
        place = await _place(gateway, socket, job)
        async with _agent(gateway, place.node, place.asked("forward")) as agent:
            opened = Forward(
                job_id=place.job.id,
                attempt=place.attempt,
                node=place.node,
                port=int(port),
                opened_by=place.caller.name,
            )
            async with gateway.forwards.opened(place.session_id, opened):
                await socket.accept()
                async with _audited(gateway, socket, place, "forward", port=int(port)) as ended:
                    ended(await relay(socket, agent))

    await _answered(socket, serve)


@router.websocket("/v1/forwards/{session_id}")
async def connect(socket: WebSocket, session_id: str) -> None:
    """One connection of a forward."""

    async def serve(gateway: Gateway) -> None:
        caller = sender(gateway, socket)
        opened = gateway.forwards.get(session_id)
        if opened is None or opened.opened_by != caller.name:
            raise not_found("open forward", session_id)
        own = secrets.token_hex(8)
        fields: dict[str, str | int] = {"job": opened.job_id, "attempt": opened.attempt, "session": own}
        async with _agent(gateway, opened.node, {**fields, "kind": "connection", "port": opened.port}) as agent:
            await socket.accept()
            task = asyncio.create_task(relay(socket, agent))
            opened.connections.add(task)
            try:
                await asyncio.wait((task,))  # it is cancelled with the forward
            finally:
                task.cancel()
                opened.connections.discard(task)

    await _answered(socket, serve)


async def _answered(socket: WebSocket, serve: Callable[[Gateway], Awaitable[None]]) -> None:
    """Refusals become problem documents before the handshake, and last messages after it."""
    gateway: Gateway = socket.app.state.gateway
    problem: Problem | None = None
    try:
        await serve(gateway)
    except Problem as error:
        problem = error
    except ReadModelsAway as error:
        problem = unavailable(f"the read models cannot be read: {error}")
    except BusError as error:
        problem = unavailable(f"the log cannot be read: {error}")
    except WebSocketDisconnect:
        log.debug("a client of a session has left", exc_info=True)
    if problem is not None and socket.application_state.name == "CONNECTING":
        await socket.send_denial_response(problem.response(socket.url.path))
        return
    with suppress(RuntimeError, WebSocketDisconnect):  # it may have left
        if problem is not None:
            await socket.send_text(text_of(Exited(note=str(problem.detail))))
        await socket.close()


async def _place(gateway: Gateway, socket: WebSocket, reference: str) -> Place:
    """Where the session goes, for a caller that may go there.

    Raises:
        Problem: 401 and 403; 404 for an unknown job; 409 when it does not run; 503 while its node is away.
    """
    caller = sender(gateway, socket)
    if not caller.may(Scope.OPERATE) and not caller.may(Scope.SUBMIT):
        raise refuse_scope(caller, Scope.SUBMIT)
    text = socket.query_params.get("rank", "0")
    if not (text.isdecimal() and len(text) < 10):
        raise invalid("rank", "expected a number, 0 or more", text, where="query")
    job = await find_job(gateway, reference)
    require_tenant(caller, job.tenant)
    if job.state is not JobState.RUNNING:
        why = f" ({job.message})" if job.message else ""
        raise Problem("conflict", f"{job.id} does not run: it is {job.state.value}{why}")
    node, attempt = await holding_node(gateway, job.id, int(text), what=f"{job.id} is")
    session_id = f"x-{secrets.token_hex(8)}"
    return Place(caller=caller, job=job, node=node, attempt=attempt, rank=int(text), session_id=session_id)


@asynccontextmanager
async def _agent(gateway: Gateway, node: NodeRow, asked: dict[str, str | int]) -> AsyncIterator[ClientConnection]:
    """A WebSocket into the node.

    Raises:
        Problem: the agent's own, or 503 when it does not answer.
    """
    try:
        agent = await enter(gateway.agents, agent_of(node), asked)
    except AgentAway as error:
        raise unavailable(str(error), 5) from None
    except AgentRefused as error:
        about = f"node {node.id}: {error}"
        slug = {404: "not-found", 409: "conflict"}.get(error.status)
        raise Problem(slug, about) if slug else unavailable(f"{about} (status {error.status})", 5) from None
    async with agent:
        yield agent


async def _start(socket: WebSocket) -> Start | None:
    """The first message, which says what is to be run. None: the client has left.

    Raises:
        Problem: it is something else.
    """
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        return None
    try:
        start = from_client.decode(message.get("text") or "")
    except msgspec.DecodeError as error:
        raise Problem("malformed", f"the first message: {error}") from None
    if not isinstance(start, Start):
        raise Problem("malformed", "the first message: expected one of type start")
    if start.terminal is None and not start.command:
        raise Problem("malformed", "command: expected one word or more where there is no terminal")
    if any("\0" in word for word in start.command):
        raise Problem("malformed", "command: a word cannot have a null character")
    if sum(len(word.encode()) for word in start.command) > LONGEST_COMMAND_BYTES:
        raise Problem("too-large", f"command: expected at most {LONGEST_COMMAND_BYTES} bytes")
    return start


@asynccontextmanager
async def _audited(
    gateway: Gateway,
    socket: WebSocket,
    place: Place,
    kind: str,
    *,
    command: Sequence[str] = (),
    port: int | None = None,
) -> AsyncIterator[Callable[[Exited | None], None]]:
    """The session between its two events. What has not got onto the log does not begin.

    Yields:
        To be told how the session has ended.
    """
    event = JobSessionOpened(
        job_id=place.job.id,
        session_id=place.session_id,
        kind=kind,
        opened_by=place.caller.name,
        attempt=place.attempt,
        node_id=place.node.id,
        rank=place.rank,
        command=list(command),
        port=port,
    )
    gateway.sessions.here.add(place.session_id)
    try:
        await append(gateway, f"{place.session_id}/opened", event)
    except BaseException:
        gateway.sessions.ended(place.session_id, is_said=False)  # it may be on the log
        raise
    ended, is_said = Exited(note=_ENDED_LATE), False

    def note(exited: Exited | None) -> None:
        nonlocal ended
        ended = exited or ended

    try:
        opened = Opened(
            session_id=place.session_id,
            job_id=place.job.id,
            name=place.job.name,
            attempt=place.attempt,
            node_id=place.node.id,
        )
        await socket.send_text(text_of(opened))
        yield note
    finally:
        closed = JobSessionClosed(
            job_id=place.job.id,
            session_id=place.session_id,
            exit_code=ended.exit_code,
            signal=ended.signal,
            note=ended.note,
        )
        try:
            await append(gateway, f"{place.session_id}/closed", closed)
            is_said = True
        except Problem as error:
            log.warning("the end of session %s is not on the log yet: %s", place.session_id, error.detail)
        finally:
            gateway.sessions.ended(place.session_id, is_said=is_said)
