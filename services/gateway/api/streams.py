"""Streams: server-sent events for browsers and clients, JSON lines for curl."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fastapi import Request
from starlette.responses import StreamingResponse

from services.gateway.door import Gateway
from services.gateway.problems import Problem, shown

SSE, NDJSON, JSON, TEXT = "text/event-stream", "application/x-ndjson", "application/json", "text/plain"
HEARTBEAT = b": still here\n\n"


def wanted(request: Request, offered: tuple[str, ...]) -> str:
    """The first of the offered media types that the client accepts, in the client's order.

    Raises:
        Problem: 406: it accepts none of them.
    """
    accept = request.headers.get("accept", "*/*") or "*/*"
    asked = []
    for place, part in enumerate(accept.split(",")):
        name, _, parameters = part.strip().partition(";")
        quality = parameters.replace(" ", "").partition("q=")[2].split(";")[0]
        try:
            asked.append((-float(quality or 1.0), place, name.strip().lower()))
        except ValueError:
            asked.append((-1.0, place, name.strip().lower()))
    for weight, _, name in sorted(asked):
        if weight == 0:
            continue
        for media_type in offered:
            if name in (media_type, "*/*", f"{media_type.partition('/')[0]}/*"):
                return media_type
    raise Problem("not-acceptable", f"{shown(accept)} cannot be given; there are {', '.join(offered)}")


def sse(data: bytes, *, event: str, offset: int | None = None) -> bytes:
    """One server-sent event; its id is the offset, so that a client which reconnects goes on behind it."""
    ident = b"" if offset is None else b"id: %d\n" % offset
    return b"%sevent: %s\ndata: %s\n\n" % (ident, event.encode(), data)


def resume_after(request: Request, from_offset: int | None) -> int | None:
    """Where a stream starts: behind `Last-Event-ID`, else at `from_offset`; None: not said.

    Raises:
        Problem: 400: the header is no offset.
    """
    last = request.headers.get("last-event-id")
    if last is None or not last.strip():
        return from_offset
    if not last.strip().isdecimal() or len(last.strip()) > 18:
        raise Problem("malformed", f"Last-Event-ID is {shown(last)!r}; expected an offset")
    return int(last) + 1


def broken_off(error: Exception, media_type: str) -> bytes:
    """What a stream says that cannot go on: clients of server-sent events connect again.

    Raises:
        Exception: the error, of any other media type: the connection breaks, as what came must not look whole.
    """
    if media_type != SSE:
        raise error
    return b": %s\nretry: 2000\n\n" % str(error).replace("\n", " ").encode()


def stream(gateway: Gateway, chunks: AsyncIterator[bytes], media_type: str) -> StreamingResponse:
    """A response that lasts."""

    async def counted() -> AsyncIterator[bytes]:
        with gateway.metrics.streams.track_inprogress():
            async for chunk in chunks:
                yield chunk

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(counted(), media_type=media_type, headers=headers)
