"""A job's output: what is kept, or live."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request, Response

from libs.bus.port import BusError
from libs.contracts.read_models import FINAL_STATES, JobRow
from services.gateway.adapters import job_queries
from services.gateway.adapters.database import ReadModelsAway
from services.gateway.adapters.job_logs import JobLogs, LineFilter
from services.gateway.api.callers import Reader
from services.gateway.api.common import REFERENCE, Door, JobReference, answer, media
from services.gateway.api.finding import own_job
from services.gateway.api.streams import (
    HEARTBEAT,
    JSON,
    NDJSON,
    SSE,
    TEXT,
    broken_off,
    resume_after,
    sse,
    stream,
    wanted,
)
from services.gateway.door import Gateway
from services.gateway.models.answers import LogLines
from services.gateway.strict import StrictRoute

_LOOK_EVERY_S = 1.0
"""How often a silent follower looks whether the job has ended."""

router = APIRouter(prefix="/v1/jobs/{job}", tags=["jobs"], route_class=StrictRoute)

_DOCUMENT = media(
    "Lines of output.",
    {
        JSON: {"schema": {"$ref": "#/components/schemas/LogLines"}},
        TEXT: {"schema": {"type": "string"}},
        NDJSON: {"schema": {"type": "string"}},
        SSE: {"schema": {"type": "string"}},
    },
    400,
    404,
    406,
    409,
)


@router.get("/logs", operation_id="readJobLogs", responses=_DOCUMENT)
async def read_logs(
    gateway: Door,
    caller: Reader,
    request: Request,
    job: JobReference,
    follow: Annotated[bool, Query(description="Stay until the job has ended; SSE or JSON lines.")] = False,
    tail: Annotated[int | None, Query(ge=0, le=100_000, description="The last lines only.")] = None,
    since_s: Annotated[
        float | None, Query(ge=0, le=1e12, allow_inf_nan=False, description="Not before this time.")
    ] = None,
    attempt: Annotated[int | None, Query(ge=1, le=2**31)] = None,
    rank: Annotated[int | None, Query(ge=0, le=2**31)] = None,
    node: Annotated[str | None, Query(pattern=REFERENCE)] = None,
    stream_name: Annotated[str | None, Query(alias="stream", pattern="^(stdout|stderr)$")] = None,
    from_offset: Annotated[
        int | None, Query(ge=0, le=2**62, description="Of the job's partition of the logs topic.")
    ] = None,
) -> Response:
    """Lines that the job wrote. Logs are kept for a limited time.

    A followed stream ends with the event `end`, which carries the job's state and exit code.
    """
    row = await own_job(gateway, caller, job)
    chosen = LineFilter(attempt=attempt, rank=rank, node_id=node, stream=stream_name, since_s=since_s)
    logs = JobLogs(gateway.bus, row.id, chosen)
    if follow:
        media_type = wanted(request, (SSE, NDJSON, TEXT))
        start = resume_after(request, from_offset)
        return stream(gateway, _live(gateway, row.id, logs, start, tail, media_type), media_type)
    media_type = wanted(request, (JSON, TEXT, NDJSON))
    lines, _ = await logs.tail(tail)
    if media_type == JSON:
        return answer(LogLines(items=lines))
    return Response(b"".join(_encode(line, media_type) for line in lines), media_type=media_type)


async def _live(
    gateway: Gateway, job_id: str, logs: JobLogs, start: int | None, tail: int | None, media_type: str
) -> AsyncIterator[bytes]:
    async def ended() -> bool:
        try:
            row = await gateway.database.read(lambda connection: job_queries.job(connection, job_id))
        except ReadModelsAway:
            return gateway.stop.is_set()
        return gateway.stop.is_set() or (row is not None and row.state in FINAL_STATES)

    try:
        if start is None:
            lines, start = await logs.tail(tail)
            if lines:
                yield _chunk(lines, lines[-1]["offset"], media_type)
        silent_since = time.monotonic()
        async for found in logs.follow(start, min(gateway.settings.heartbeat_s, _LOOK_EVERY_S), ended):
            if found is not None:
                yield _chunk(found.lines, found.offset, media_type)
            elif media_type != SSE or time.monotonic() - silent_since < gateway.settings.heartbeat_s:
                continue
            else:
                yield HEARTBEAT
            silent_since = time.monotonic()
        if media_type == SSE:
            row = await gateway.database.read(lambda connection: job_queries.job(connection, job_id))
            if row is not None:
                yield sse(msgspec.json.encode(_end(row)), event="end")
    except (BusError, ReadModelsAway) as error:
        yield broken_off(error, media_type)


def _end(row: JobRow) -> dict[str, Any]:
    return {"state": row.state, "exit_code": row.exit_code, "signal": row.signal, "reason": row.reason}


def _chunk(lines: list[dict[str, Any]], offset: int, media_type: str) -> bytes:
    if media_type == SSE:
        return sse(msgspec.json.encode({"lines": lines}), event="lines", offset=offset)
    return b"".join(_encode(line, media_type) for line in lines)


def _encode(line: dict[str, Any], media_type: str) -> bytes:
    if media_type == NDJSON:
        return msgspec.json.encode(line) + b"\n"
    return f"{line['text']}\n".encode()
