"""The log for agents that have joined by the gateway: `libs/bus/http/protocol.py`, request by request.

A token with the scope `agent` reads the orders of its nodes and appends the facts of its nodes; the rest is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
from fastapi import APIRouter, Request, Response

from libs.bus.http.protocol import (
    MAX_REQUEST_BYTES,
    MEDIA_TYPE,
    ROOT,
    AppendQuestion,
    CommitQuestion,
    ExtentQuestion,
    KeyAnswer,
    KeyQuestion,
    Lost,
    PositionQuestion,
    ReadQuestion,
    SessionQuestion,
    TopicQuestion,
)
from libs.bus.port import (
    BusError,
    BusUnavailable,
    Fenced,
    LogFull,
    MessageTooLarge,
    OffsetLost,
    OutcomeUnknown,
)
from services.gateway.adapters.agents_bus import own
from services.gateway.api.callers import Agent
from services.gateway.api.common import Door, media
from services.gateway.core.ownership import NotOwned
from services.gateway.problems import Problem, no_room, unavailable
from services.gateway.strict import StrictRoute, limited

router = APIRouter(prefix=ROOT, tags=["agents"], route_class=StrictRoute)

Q = TypeVar("Q")


def _schema(name: str) -> dict[str, Any]:
    return {MEDIA_TYPE: {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def _documented(question: str, answer: str, *problems: int) -> dict[str, Any]:
    """For the document: what is asked and answered, in MessagePack."""
    body = {"requestBody": {"required": True, "content": _schema(question)}} if question else {}
    return {
        "responses": media(answer, _schema(answer), 400, 413, 415, *problems),
        "openapi_extra": body,
    }


async def _asked(request: Request, kind: type[Q]) -> Q:
    """The question in a request.

    Raises:
        Problem: 413, 415, 400: it is no MessagePack, 422: it is another question.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != MEDIA_TYPE:
        raise Problem("media-type", f"the body is {media_type[:100] or 'of no media type'}; expected {MEDIA_TYPE}")
    body = b"".join([chunk async for chunk in limited(request, MAX_REQUEST_BYTES)])
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise Problem("invalid", f"the body is no {kind.__name__}: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem("malformed", f"the body is not MessagePack: {error}") from None


def _told(answer: msgspec.Struct) -> Response:
    return Response(msgspec.msgpack.encode(answer), media_type=MEDIA_TYPE)


@contextmanager
def _as_problems() -> Iterator[None]:
    """The errors of the port, and of ownership, as the problems that an agent's bus makes the same errors of."""
    try:
        yield
    except NotOwned as error:
        raise Problem("forbidden", str(error)) from None
    except Fenced as error:
        raise Problem("fenced", str(error)) from None
    except OffsetLost as error:
        lost = [Lost(partition=partition, begin=begin) for partition, begin in error.begins.items()]
        raise Problem("offset-lost", str(error), more={"lost": msgspec.to_builtins(lost)}) from None
    except MessageTooLarge as error:
        raise Problem("too-large", str(error)) from None
    except LogFull as error:
        raise no_room(f"{error}; nothing was appended") from None
    except OutcomeUnknown as error:
        raise Problem("unknown-outcome", str(error), headers={"Retry-After": "1"}) from None
    except BusUnavailable as error:
        raise unavailable(str(error), 1) from None
    except BusError as error:
        raise Problem("invalid", str(error)) from None


@router.post("/hello", operation_id="helloBus", **_documented("", "Hello"))
async def hello(gateway: Door, caller: Agent) -> Response:
    """The cell of this gateway, and whether older parts of its log were archived."""
    with _as_problems():
        return _told(await gateway.agents_bus.hello())


@router.post("/topic", operation_id="describeBusTopic", **_documented("TopicQuestion", "TopicAnswer"))
async def topic(gateway: Door, caller: Agent, request: Request) -> Response:
    """How many partitions a topic has."""
    question = await _asked(request, TopicQuestion)
    with _as_problems():
        return _told(await gateway.agents_bus.topic(question))


@router.post("/extent", operation_id="measureBusPartition", **_documented("ExtentQuestion", "ExtentAnswer"))
async def extent(gateway: Door, caller: Agent, request: Request) -> Response:
    """Where a partition begins and ends."""
    question = await _asked(request, ExtentQuestion)
    with _as_problems():
        return _told(await gateway.agents_bus.extent(question))


@router.post("/read", operation_id="readBus", **_documented("ReadQuestion", "ReadAnswer", 410))
async def read(gateway: Door, caller: Agent, request: Request) -> Response:
    """The next messages from some offsets on, as soon as there are any; none after `timeout_s`, 20 s at most.

    Orders of the token's nodes and what their agents have said come whole. What is not for them is left out, but for an
    empty message at the end of each partition's.
    """
    question = await _asked(request, ReadQuestion)
    with _as_problems():
        return _told(await gateway.agents_bus.read(caller, question))


@router.post("/append", operation_id="appendToBus", **_documented("AppendQuestion", "Done", 507))
async def append(gateway: Door, caller: Agent, request: Request) -> Response:
    """Append measurements of the token's nodes, in order, at least once."""
    question = await _asked(request, AppendQuestion)
    with _as_problems():
        return _told(await gateway.agents_bus.append(caller, question))


@router.post("/session", operation_id="openBusSession", **_documented("SessionQuestion", "SessionAnswer", 507))
async def session(gateway: Door, caller: Agent, request: Request) -> Response:
    """Take over the session of a node's agent: an older holder can never write again. The same `claim` is the same."""
    question = await _asked(request, SessionQuestion)
    with _as_problems():
        return _told(await gateway.agents_bus.session(caller, question))


@router.post("/position", operation_id="readBusPosition", **_documented("PositionQuestion", "PositionAnswer"))
async def position(gateway: Door, caller: Agent, request: Request) -> Response:
    """How far a session has come in a partition, with its note."""
    question = await _asked(request, PositionQuestion)
    with _as_problems():
        return _told(await gateway.agents_bus.position(caller, question))


@router.post("/commit", operation_id="commitToBus", **_documented("CommitQuestion", "CommitAnswer", 409, 507))
async def commit(gateway: Door, caller: Agent, request: Request) -> Response:
    """Append facts of a node and move positions, all or nothing. The same `number` again is the same commit."""
    question = await _asked(request, CommitQuestion)
    with _as_problems():
        return _told(await gateway.agents_bus.commit(caller, question))


@router.post("/key", operation_id="readNodeKey", **_documented("KeyQuestion", "KeyAnswer"))
async def key(gateway: Door, caller: Agent, request: Request) -> Response:
    """The secret of one node, by which its agent knows the gateway's requests for files of jobs."""
    question = await _asked(request, KeyQuestion)
    with _as_problems():
        own(caller).require_node(question.node_id)
    return _told(KeyAnswer(key=gateway.agents.key_of(question.node_id)))
