"""The control topic: page by page, or live."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response

from libs.bus.port import BusError
from libs.contracts.base import Topic, event_classes
from services.gateway.adapters import cluster_queries
from services.gateway.adapters.cluster_queries import EventFilter
from services.gateway.adapters.feed import Entry
from services.gateway.api.callers import Reader
from services.gateway.api.common import (
    REFERENCE,
    Cursor,
    Door,
    Limit,
    answer,
    cursor_of,
    fresh,
    look,
    media,
    next_page,
    offset_of,
    one_of,
)
from services.gateway.api.streams import HEARTBEAT, JSON, NDJSON, SSE, broken_off, resume_after, sse, stream, wanted
from services.gateway.core.cloudevent import structured_row
from services.gateway.door import Gateway
from services.gateway.models.answers import EventList
from services.gateway.problems import unavailable
from services.gateway.strict import StrictRoute

router = APIRouter(prefix="/v1", tags=["events"], route_class=StrictRoute)

_FEED_STARTS_WITHIN_S = 5.0

Names = list[Annotated[str, Query(pattern=REFERENCE)]]
Sources = list[Annotated[str, Query(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/@+-]{0,127}$")]]

_DOCUMENT = media(
    "Events, each a structured CloudEvent with its `offset`.",
    {
        JSON: {"schema": {"$ref": "#/components/schemas/EventList"}},
        SSE: {"schema": {"type": "string"}},
        NDJSON: {"schema": {"type": "string"}},
    },
    400,
    406,
)


def known_types() -> tuple[str, ...]:
    """The wire names on control."""
    return tuple(cls.wire_type for cls in event_classes() if cls.topic is Topic.CONTROL)


@router.get("/events", operation_id="readEvents", responses=_DOCUMENT)
async def read_events(
    gateway: Door,
    caller: Reader,
    request: Request,
    limit: Limit = 100,
    cursor: Cursor = None,
    type: Annotated[
        list[str], Query(description="Wire names; repeat for alternatives.", examples=[["job.placed.v1"]])
    ] = [],  # noqa: B006
    job: Annotated[Names, Query(description="Job ids.")] = [],  # noqa: B006
    node: Annotated[Names, Query(description="Node ids.")] = [],  # noqa: B006
    source: Annotated[Sources, Query(description="`placement`, `agent/n1`, …")] = [],  # noqa: B006
    from_offset: Annotated[
        int | None, Query(ge=0, le=2**62, description="First offset; streams: default from now on.")
    ] = None,
    order: Annotated[
        str, Query(pattern="^(newest|oldest)$", description="Of pages; streams are always oldest first.")
    ] = "oldest",
    follow: Annotated[bool, Query(description="Of streams: stay when the end is reached.")] = True,
    at_least_offset: Annotated[int | None, Query(ge=0, le=2**62)] = None,
    prefer: Annotated[str | None, Header()] = None,
) -> Response:
    """Events on control: as pages (JSON), as a stream for browsers (SSE), or as JSON lines for curl.

    A stream's ids are log offsets: a client that reconnects with `Last-Event-ID` misses nothing and gets
    nothing twice.
    """
    one_of(type, known_types(), "type")
    chosen = EventFilter(types=type, jobs=job, nodes=node, sources=source)
    media_type = wanted(request, (JSON, SSE, NDJSON))
    if media_type != JSON:
        start = resume_after(request, from_offset)
        await _require_feed(gateway)
        return stream(gateway, _live(gateway, chosen, start, media_type, follow=follow), media_type)
    await fresh(gateway, at_least_offset, prefer)
    after = offset_of(cursor)
    if after is None and from_offset is not None and order == "oldest":
        after = from_offset - 1
    rows, offset = await look(
        gateway,
        lambda connection: cluster_queries.event_page(
            connection, chosen, limit=limit + 1, after=after, newest_first=order == "newest"
        ),
    )
    more = len(rows) > limit
    rows = rows[:limit]
    next_cursor = cursor_of(rows[-1].log_offset) if more else None
    headers = next_page("/v1/events", next_cursor, limit)
    return answer(
        EventList(items=[structured_row(row) for row in rows], next_cursor=next_cursor), offset=offset, headers=headers
    )


async def _require_feed(gateway: Gateway) -> None:
    """A stream of a log that cannot be reached would be silent for ever."""
    try:
        async with asyncio.timeout(_FEED_STARTS_WITHIN_S):
            await gateway.feed.started.wait()
    except TimeoutError:
        raise unavailable("the log cannot be reached") from None


async def _live(
    gateway: Gateway, chosen: EventFilter, start: int | None, media_type: str, *, follow: bool
) -> AsyncIterator[bytes]:
    end = None if follow else gateway.feed.next_offset
    if start is None and not follow:
        start = 0
    try:
        async for batch in gateway.feed.follow(start, gateway.settings.heartbeat_s, end=end):
            chunk = b"".join(_encode(entry, media_type) for entry in batch if _is_chosen(entry, chosen))
            if chunk or media_type == SSE:
                yield chunk or HEARTBEAT
    except BusError as error:
        yield broken_off(error, media_type)


def _is_chosen(entry: Entry, chosen: EventFilter) -> bool:
    envelope = entry.record.envelope
    return chosen.holds(
        event_type=envelope.event.wire_type,
        job_id=getattr(envelope.event, "job_id", None),
        node_id=getattr(envelope.event, "node_id", None),
        source=envelope.source,
    )


def _encode(entry: Entry, media_type: str) -> bytes:
    if media_type == NDJSON:
        return entry.json + b"\n"
    return sse(entry.json, event=entry.record.envelope.event.wire_type, offset=entry.offset)
