"""Why a job is where it is, its story, its curves."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import sqlalchemy as sa
from fastapi import APIRouter, Query, Response

from libs.contracts.read_models import WAITING_STATES, EventRow, JobRow, ProfileRow, ReportRow
from libs.inspect.story import story
from libs.inspect.why import why
from services.gateway.adapters import cluster_queries, job_queries
from services.gateway.adapters.cores import PATIENCE_S, NotFollowed
from services.gateway.api.callers import Reader
from services.gateway.api.common import Door, Fresh, JobReference, answer, look, responses
from services.gateway.api.finding import find_job
from services.gateway.core import views
from services.gateway.core.records import records_of
from services.gateway.core.why import checks
from services.gateway.models.answers import Check, Forecast, JobMetrics, Point, ReportedPoint, Story, Why
from services.gateway.problems import Problem
from services.gateway.strict import StrictRoute

router = APIRouter(prefix="/v1/jobs/{job}", tags=["jobs"], route_class=StrictRoute)


@router.get("/why", operation_id="explainJob", dependencies=[Fresh], responses=responses("Why", 404, 409))
async def explain(gateway: Door, caller: Reader, job: JobReference) -> Response:
    """Why a job waits, or is where it is: the reasons that stand on the log, and what each service has said last."""
    job_id = (await find_job(gateway, job)).id

    def query(connection: sa.Connection) -> tuple[JobRow | None, list[EventRow], dict[str, int]]:
        row = job_queries.job(connection, job_id)
        waits = row is not None and row.state in WAITING_STATES
        places = job_queries.queue_positions(connection) if waits else {}
        found = job_queries.events_of(connection, job_id)
        return row, job_queries.with_those_before(connection, found), places

    (row, events, places), offset = await look(gateway, query)
    assert row is not None, "a job does not vanish"
    explanation = why(records_of(events), job_id, gateway.now())
    own = [event for event in events if event.job_id == job_id]
    before = [msgspec.to_builtins(waited) for waited in explanation.before] if explanation else []
    found = Why(
        job_id=row.id,
        name=row.name,
        state=row.state,
        since_s=explanation.since_s if explanation else row.queued_s,
        attempt=row.attempt,
        reason=row.reason,
        message=row.message,
        numbers=row.numbers,
        rejected=row.rejected,
        decided_by=row.reason_source,
        offset=row.reason_offset,
        where=views.where(row.placement),
        failure=row.failure,
        deciding_line=row.deciding_line,
        queue_position=places.get(row.id),
        checks=[Check(**vars(check)) for check in checks(row, own)],
        before=before,
        waits_s=explanation.waits_s if explanation else {},
        waits_for=explanation.waits_for if explanation else "",
        behind=explanation.behind if explanation else "",
    )
    return answer(found, offset=offset)


@router.get("/forecast", operation_id="foreseeJob", dependencies=[Fresh], responses=responses("Forecast", 404, 409))
async def foresee(gateway: Door, caller: Reader, job: JobReference) -> Response:
    """What would start a waiting job at the next decision, each found by running the cores forward from the present,
    and when it is expected to start."""
    row = await find_job(gateway, job)
    if row.state not in WAITING_STATES:
        raise Problem("conflict", f"{row.id} does not wait: it is {row.state.value}")
    _, offset = await look(gateway, lambda connection: None)
    try:
        found, reached = await gateway.cores.forecast(row.id, offset + 1, PATIENCE_S)
    except NotFollowed as error:
        raise Problem("unavailable", str(error), headers={"Retry-After": "1"}) from None
    return answer(Forecast(**found.document()), offset=reached)


@router.get("/story", operation_id="tellJob", dependencies=[Fresh], responses=responses("Story", 404, 409))
async def tell(
    gateway: Door,
    caller: Reader,
    job: JobReference,
    measurements: Annotated[bool, Query(description="Tell every JobProfiled too.")] = False,
) -> Response:
    """The job's events in sentences, each under its cause."""
    job_id = (await find_job(gateway, job)).id

    def query(connection: sa.Connection) -> list[EventRow]:
        events = job_queries.events_of(connection, job_id, measurements=measurements)
        events += job_queries.turns_of(connection, job_id, events[0].log_offset, events[-1].log_offset)
        known = {row.id for row in events}
        causes = sorted({row.causation_id for row in events} - known - {""})
        return sorted([*events, *cluster_queries.events_by_id(connection, causes)], key=lambda row: row.log_offset)

    events, offset = await look(gateway, query)
    told = story(records_of(events), job_id)
    lines: list[dict[str, Any]] = [msgspec.to_builtins(line) for line in told.told]
    return answer(Story(subject=job_id, told=lines, lines=told.lines()), offset=offset)


@router.get(
    "/metrics", operation_id="readJobMetrics", dependencies=[Fresh], responses=responses("JobMetrics", 404, 409)
)
async def metrics(
    gateway: Door,
    caller: Reader,
    job: JobReference,
    limit: Annotated[int, Query(ge=1, le=20_000, description="Newest points, and newest reports.")] = 2000,
) -> Response:
    """The job's curves: rate, loss and memory over time, and what its script has reported."""
    job_id = (await find_job(gateway, job)).id

    def query(connection: sa.Connection) -> tuple[list[ProfileRow], list[ReportRow]]:
        profiles = job_queries.profiles_of(connection, job_id, limit)
        return profiles, job_queries.reports_of(connection, job_id, limit)

    (profiles, reports), offset = await look(gateway, query)
    reported: dict[str, list[ReportedPoint]] = {}
    for row in reports:
        point = ReportedPoint(attempt=row.attempt, step=row.step, value=row.value, time_s=row.time_s)
        reported.setdefault(row.name, []).append(point)
    found = JobMetrics(job_id=job_id, points=[_point(row) for row in profiles], reported=reported)
    return answer(found, offset=offset)


def _point(row: ProfileRow) -> Point:
    return Point(
        attempt=row.attempt,
        time_s=row.window_start_s + row.window_s,
        minibatches=row.minibatches_total,
        rate_per_s=row.rate_per_s,
        loss=row.loss,
        memory_peak_bytes=row.memory_peak_bytes,
        memory_min_bytes=row.memory_min_bytes,
    )
