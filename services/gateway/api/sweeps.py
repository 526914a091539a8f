"""Sweeps: submitted, found, watched, ended."""

from __future__ import annotations

from itertools import groupby
from typing import Annotated

import sqlalchemy as sa
from fastapi import APIRouter, Query, Response

from libs.contracts.gateway import SweepArrived, SweepCancelRequested
from libs.contracts.read_models import FINAL_SWEEP_STATES, SweepRow, SweepState
from libs.kernel.ids import short_id
from services.gateway.adapters import sweep_queries
from services.gateway.adapters.sweep_queries import Told, TrialOfJob
from services.gateway.api.callers import Reader, Submitter, require_tenant
from services.gateway.api.common import (
    Cursor,
    Door,
    Fresh,
    IdempotencyKey,
    Limit,
    SweepReference,
    answer,
    append,
    cursor_of,
    is_accepted,
    look,
    next_page,
    offset_of,
    require_code,
    responses,
    said_of,
    scoped,
)
from services.gateway.api.finding import find_sweep
from services.gateway.core import sweep_views
from services.gateway.core.idempotency import request_digest
from services.gateway.models.answers import Requested
from services.gateway.models.sweep_answers import (
    CurvePoint,
    Improvement,
    Sweep,
    SweepCurves,
    SweepDetail,
    SweepList,
    SweepSubmitted,
    Trial,
    TrialCurve,
)
from services.gateway.models.sweep_request import CancelSweepRequest, SweepRequest
from services.gateway.problems import Problem
from services.gateway.strict import StrictRoute

router = APIRouter(prefix="/v1/sweeps", tags=["sweeps"], route_class=StrictRoute)


@router.post(
    "",
    operation_id="submitSweep",
    status_code=201,
    responses=responses("SweepSubmitted", 400, 409, 413, 415, 507, status=201),
)
async def submit(gateway: Door, caller: Submitter, body: SweepRequest, key: IdempotencyKey = None) -> Response:
    """Accept a sweep. Its trials become jobs, each with parameters from the space that is searched."""
    require_code(gateway, body.trial.code_id, "/trial/code_id")
    spec = body.spec(caller.name)
    require_tenant(caller, spec.trial.tenant)
    key = scoped(key, caller)
    digest = request_digest(body.canonical())
    event = SweepArrived(sweep_id=short_id("s", key), spec=spec, submitted_by=caller.name, request_digest=digest)
    taken = await append(gateway, key, event)
    accepted = SweepSubmitted(
        id=taken.subject,
        name=spec.name,
        tenant=spec.trial.tenant,
        state=SweepState.RUNNING,
        offset=taken.offset,
        url=f"/v1/sweeps/{taken.subject}",
    )
    return answer(accepted, 201, offset=taken.offset, headers=said_of(taken, accepted.url))


@router.get("", operation_id="listSweeps", dependencies=[Fresh], responses=responses("SweepList"))
async def list_sweeps(
    gateway: Door,
    caller: Reader,
    limit: Limit = 100,
    cursor: Cursor = None,
    state: Annotated[list[SweepState], Query(description="Repeat for alternatives.")] = [],  # noqa: B006
) -> Response:
    """Sweeps, newest first, page by page."""
    after = offset_of(cursor)

    def query(connection: sa.Connection) -> tuple[list[SweepRow], dict[str, dict[str, int]]]:
        rows = sweep_queries.page(connection, state, limit=limit + 1, after=after)
        return rows, sweep_queries.counts(connection, [row.id for row in rows[:limit]])

    (rows, counts), offset = await look(gateway, query)
    items = [Sweep(**sweep_views.sweep(row, counts[row.id])) for row in rows[:limit]]
    next_cursor = cursor_of(rows[limit - 1].arrived_offset) if len(rows) > limit else None
    headers = next_page("/v1/sweeps", next_cursor, limit)
    return answer(SweepList(items=items, next_cursor=next_cursor), offset=offset, headers=headers)


@router.get("/{sweep}", operation_id="getSweep", dependencies=[Fresh], responses=responses("SweepDetail", 404, 409))
async def get_sweep(gateway: Door, caller: Reader, sweep: SweepReference) -> Response:
    """One sweep with all its trials."""
    sweep_id = (await find_sweep(gateway, sweep)).id

    def query(connection: sa.Connection) -> tuple[SweepRow | None, dict[str, int], list[TrialOfJob]]:
        counts = sweep_queries.counts(connection, [sweep_id])[sweep_id]
        return sweep_queries.sweep(connection, sweep_id), counts, sweep_queries.trials_of(connection, sweep_id)

    (row, counts, trials), offset = await look(gateway, query)
    assert row is not None, "a sweep does not vanish"
    found = SweepDetail(
        **sweep_views.sweep(row, counts),
        spec=row.spec,
        submitted_by=row.submitted_by,
        trials=[Trial(**sweep_views.trial(trial.row, trial.job_state, trial.priority)) for trial in trials],
    )
    return answer(found, offset=offset)


@router.get(
    "/{sweep}/curves",
    operation_id="readSweepCurves",
    dependencies=[Fresh],
    responses=responses("SweepCurves", 404, 409),
)
async def read_curves(
    gateway: Door,
    caller: Reader,
    sweep: SweepReference,
    limit: Annotated[
        int, Query(ge=100, le=200_000, description="Most points of all curves together; longer ones are thinned out.")
    ] = 20_000,
) -> Response:
    """What each trial has reported of the objective, and the best value so far over time."""
    row = await find_sweep(gateway, sweep)

    def query(connection: sa.Connection) -> tuple[list[Told], list[Told]]:
        started = sum(sweep_queries.counts(connection, [row.id])[row.id].values())
        most = max(1, limit // max(1, started))
        return sweep_queries.curves(connection, row, most=most), sweep_queries.improvements(connection, row)

    (told, better), offset = await look(gateway, query)
    found = SweepCurves(
        sweep_id=row.id,
        **sweep_views.objective(row),
        trials=[
            TrialCurve(number=number, job_id=job_id, points=[_point(report, row) for report in reports])
            for (number, job_id), reports in groupby(told, key=lambda report: (report.number, report.job_id))
        ],
        best=[
            Improvement(number=report.number, step=report.step, value=report.value, time_s=_since(report, row))
            for report in better
        ],
    )
    return answer(found, offset=offset)


def _point(report: Told, row: SweepRow) -> CurvePoint:
    return CurvePoint(step=report.step, value=report.value, time_s=_since(report, row))


def _since(report: Told, row: SweepRow) -> float:
    return report.time_s - row.submitted_s


@router.post(
    "/{sweep}/cancel",
    operation_id="cancelSweep",
    status_code=202,
    responses=responses("Requested", 400, 404, 409, 413, 415, 507, status=202, also="Requested"),
)
async def cancel(
    gateway: Door,
    caller: Submitter,
    sweep: SweepReference,
    body: CancelSweepRequest | None = None,
    key: IdempotencyKey = None,
) -> Response:
    """End a sweep with all its trials. 200 when that was asked for before, 409 when it has ended."""
    row = await find_sweep(gateway, sweep)
    require_tenant(caller, row.spec["trial"]["tenant"])
    event = SweepCancelRequested(sweep_id=row.id, requested_by=caller.name, note=body.note if body else "")
    key = scoped(key, caller)
    async with gateway.lock(row.id):
        if not await is_accepted(gateway, key, event):
            if row.state in FINAL_SWEEP_STATES:
                raise Problem("conflict", f"sweep {row.id} has ended ({row.state.value})")
            if row.state is SweepState.STOPPING:
                return answer(Requested(id=row.id, event=None, offset=None), 200)
        taken = await append(gateway, key, event)
    requested = Requested(id=row.id, event=event.wire_type, offset=taken.offset)
    return answer(requested, 202, offset=taken.offset, headers=said_of(taken, f"/v1/sweeps/{row.id}"))
