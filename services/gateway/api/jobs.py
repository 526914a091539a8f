"""Submitting and finding jobs."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import sqlalchemy as sa
from fastapi import APIRouter, Query, Response

from libs.contracts.gateway import ArrayArrived, JobArrived
from libs.contracts.groups import ARRAY_PREFIX
from libs.contracts.jobs import JobSpec
from libs.contracts.read_models import WAITING_STATES, AttemptRow, JobRow, JobState
from libs.forecast.answer import NewForecast
from libs.kernel.ids import short_id
from services.gateway.adapters import cluster_queries, group_queries, job_queries
from services.gateway.adapters.cores import PATIENCE_S, NotFollowed
from services.gateway.adapters.job_queries import JobFilter
from services.gateway.api.callers import Reader, Submitter, require_tenant
from services.gateway.api.common import (
    REFERENCE,
    Cursor,
    Door,
    Fresh,
    IdempotencyKey,
    JobReference,
    Limit,
    Moment,
    answer,
    append,
    cursor_of,
    is_accepted,
    look,
    next_page,
    offset_of,
    one_of,
    require_code,
    responses,
    said_of,
    scoped,
)
from services.gateway.api.dependencies import resolved
from services.gateway.api.finding import find_group, find_job
from services.gateway.core import group_views, views
from services.gateway.core.fit import Fit, fit
from services.gateway.core.idempotency import request_digest
from services.gateway.core.whereabouts import folders_on, holder_of
from services.gateway.door import Gateway
from services.gateway.models.answers import DryRun, Job, JobDetail, JobList, Submitted
from services.gateway.models.group_request import SubmitRequest
from services.gateway.problems import invalid
from services.gateway.strict import StrictRoute

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=StrictRoute)

_FIELDS = tuple(Job.__struct_encode_fields__)


@router.post(
    "",
    operation_id="submitJob",
    status_code=201,
    responses=responses("Submitted", 400, 409, 413, 415, 507, status=201, also="DryRun"),
)
async def submit(
    gateway: Door,
    caller: Submitter,
    body: SubmitRequest,
    key: IdempotencyKey = None,
    dry_run: Annotated[bool, Query(description="Say what would become of it; append nothing.")] = False,
    expected: Annotated[bool, Query(description="With `dry_run`: say when it would start, too.")] = False,
) -> Response:
    """Accept a job, or an array of jobs. From the answer on it is never lost; what becomes of it is decided by the
    services.

    With `dry_run=true` nothing is appended, and the answer (200) is a `DryRun`: of an array, of one of its jobs.
    """
    if expected and not dry_run:
        raise invalid("expected", "it is said with dry_run=true alone", expected, where="query")
    require_code(gateway, body.code_id, "/code_id")
    spec = body.spec(caller.name)
    require_tenant(caller, spec.tenant)
    if dry_run:
        return await _dry_run(gateway, spec, expected=expected)
    key = scoped(key, caller)
    digest = request_digest(body.canonical())
    event = _arrival(key, body, spec, caller.name, digest)
    if body.after and not await is_accepted(gateway, key, event):
        event = msgspec.structs.replace(event, after=await resolved(gateway, body.after, "/after"))
    warnings = await gateway.notices.of(spec)
    taken = await append(gateway, key, event)
    accepted = Submitted(
        id=taken.subject,
        name=spec.name,
        tenant=spec.tenant,
        gpus=spec.gpus.count,
        state=JobState.QUEUED,
        offset=taken.offset,
        url=f"/v1/{'jobs' if body.array is None else 'groups'}/{taken.subject}",
        jobs=1 if body.array is None else len(body.array.indices),
        warnings=warnings,
    )
    return answer(accepted, 201, offset=taken.offset, headers=said_of(taken, accepted.url))


def _arrival(key: str, body: SubmitRequest, spec: JobSpec, submitted_by: str, digest: str) -> JobArrived | ArrayArrived:
    """The event by which what is asked for arrives; what it waits for is not looked up yet."""
    if body.array is None:
        return JobArrived(job_id=short_id("j", key), spec=spec, submitted_by=submitted_by, request_digest=digest)
    return ArrayArrived(
        group_id=short_id(ARRAY_PREFIX, key),
        spec=spec,
        indices=body.array.indices,
        at_once=body.array.at_once,
        submitted_by=submitted_by,
        request_digest=digest,
    )


async def _dry_run(gateway: Gateway, spec: JobSpec, *, expected: bool) -> Response:
    def query(connection: sa.Connection) -> Fit:
        tenants = {row.name: row for row in cluster_queries.all_tenants(connection)}
        nodes, gpus = cluster_queries.all_nodes(connection), cluster_queries.all_gpus(connection)
        ahead = job_queries.count_waiting(connection, spec.priority)
        asking, guests = job_queries.asking(connection), cluster_queries.takes_guests(connection)
        return fit(spec, nodes, gpus, tenants.get(spec.tenant), ahead, asking, guests=guests)

    found, offset = await look(gateway, query)
    is_asked = expected and found.verdict in ("starts", "waits")
    start = await _start(gateway, spec, offset) if is_asked else None
    plan = DryRun(
        verdict=found.verdict,
        reason=found.reason,
        message=found.message,
        numbers=found.numbers,
        where=found.where,
        spec=msgspec.to_builtins(spec),
        expected=None if start is None else msgspec.to_builtins(start.expected),
        errors=None if start is None else msgspec.to_builtins(start.errors),
    )
    return answer(plan, offset=offset)


async def _start(gateway: Gateway, spec: JobSpec, offset: int) -> NewForecast | None:
    """When the job would start; None: that is not known now."""
    try:
        found, _ = await gateway.cores.forecast_of_new(spec, offset + 1, PATIENCE_S)
    except NotFollowed:
        return None
    return found


@router.get("", operation_id="listJobs", dependencies=[Fresh], responses=responses("JobList", 404, 409))
async def list_jobs(
    gateway: Door,
    caller: Reader,
    limit: Limit = 100,
    cursor: Cursor = None,
    state: Annotated[list[JobState], Query(description="Repeat for alternatives.")] = [],  # noqa: B006
    tenant: Annotated[list[Annotated[str, Query(pattern=REFERENCE)]], Query()] = [],  # noqa: B006
    user: Annotated[list[Annotated[str, Query(pattern=REFERENCE)]], Query()] = [],  # noqa: B006
    name: Annotated[list[Annotated[str, Query(pattern=REFERENCE)]], Query()] = [],  # noqa: B006
    label: Annotated[
        list[Annotated[str, Query(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}=[^\x00-\x1f]{0,256}$")]],
        Query(description="`name=value`; all must hold.", examples=[["project=imagenet"]]),
    ] = [],  # noqa: B006
    array: Annotated[
        list[Annotated[str, Query(pattern=REFERENCE)]], Query(description="Of these arrays, by id or name.")
    ] = [],  # noqa: B006
    dag: Annotated[
        list[Annotated[str, Query(pattern=REFERENCE)]], Query(description="Of these DAGs, by id or name.")
    ] = [],  # noqa: B006
    grouped: Annotated[
        bool, Query(description="Of each array and DAG only its first job, with a `group` that tells of the whole.")
    ] = False,
    submitted_after_s: Moment = None,
    ended_after_s: Moment = None,
    ended_before_s: Moment = None,
    fields: Annotated[list[str], Query(description="Only these members, by name, separated by commas.")] = [],  # noqa: B006
    order: Annotated[str, Query(pattern="^(newest|oldest)$")] = "newest",
) -> Response:
    """Jobs in order of arrival, page by page."""
    after = offset_of(cursor)
    names = [part.strip() for item in fields for part in item.split(",") if part.strip()]
    one_of(names, _FIELDS, "fields")
    wanted = JobFilter(
        states=state,
        tenants=tenant,
        users=user,
        names=name,
        labels=[(part[0], part[2]) for part in (item.partition("=") for item in label)],
        submitted_after_s=submitted_after_s,
        ended_after_s=ended_after_s,
        ended_before_s=ended_before_s,
        groups=[(await find_group(gateway, reference)).id for reference in (*array, *dag)],
    )
    newest = order == "newest"

    def query(connection: sa.Connection) -> tuple[list[JobRow], dict[str, int], dict[str, dict[str, Any]]]:
        rows = job_queries.page(connection, wanted, limit=limit + 1, after=after, newest_first=newest, grouped=grouped)
        waits = any(row.state in WAITING_STATES for row in rows)
        places = job_queries.queue_positions(connection) if waits else {}
        return rows, places, _groups_of(connection, rows) if grouped else {}

    (rows, places, groups), offset = await look(gateway, query)
    more = len(rows) > limit
    rows = rows[:limit]
    items = [msgspec.to_builtins(Job(**views.job(row, places.get(row.id)))) for row in rows]
    if grouped:
        items = [item | {"group": groups.get(item["group_id"])} for item in items]
    if names:
        items = [{field: item[field] for field in (*names, *(["group"] if grouped else []))} for item in items]
    next_cursor = cursor_of(rows[-1].arrived_offset) if more else None
    headers = next_page("/v1/jobs", next_cursor, limit)
    return answer(JobList(items=items, next_cursor=next_cursor), offset=offset, headers=headers)


def _groups_of(connection: sa.Connection, rows: list[JobRow]) -> dict[str, dict[str, Any]]:
    """{id: `Group`} of the arrays and DAGs of these jobs."""
    ids = list(dict.fromkeys(row.group_id for row in rows if row.group_id is not None))
    counts = group_queries.counts(connection, ids)
    known = group_queries.with_ids(connection, ids)
    return {key: group_views.group(row, counts[key]) for key, row in known.items()}


@router.get("/{job}", operation_id="getJob", dependencies=[Fresh], responses=responses("JobDetail", 404, 409))
async def get_job(gateway: Door, caller: Reader, job: JobReference) -> Response:
    """One job, with everything that is known of it. Its version is the ETag."""
    row = await find_job(gateway, job)
    return await detail(gateway, row.id)


async def detail(gateway: Gateway, job_id: str, status: int = 200) -> Response:
    """The answer for one job that exists."""

    def query(
        connection: sa.Connection,
    ) -> tuple[JobRow | None, list[AttemptRow], dict[str, int], tuple[str | None, str | None]]:
        row = job_queries.job(connection, job_id)
        waits = row is not None and row.state in WAITING_STATES
        places = job_queries.queue_positions(connection) if waits else {}
        attempts = job_queries.attempts_of(connection, job_id)
        holder = holder_of(attempts)
        node = cluster_queries.node(connection, holder.node_id) if holder is not None else None
        return row, attempts, places, folders_on(holder, node, job_id, row.spec if row is not None else {})

    (row, attempts, places, folders), offset = await look(gateway, query)
    assert row is not None, "a job does not vanish"
    fields: dict[str, Any] = views.job(row, places.get(row.id)) | {
        "spec": row.spec,
        "submitted_by": row.submitted_by,
        "rejected": row.rejected,
        "reason_source": row.reason_source,
        "reason_offset": row.reason_offset,
        "reserved_nodes": row.reserved_nodes,
        "attempts": attempts,
        "folder": folders[0],
        "output_folder": folders[1],
    }
    return answer(JobDetail(**fields), status, offset=offset, headers={"ETag": etag(row)})


def etag(row: JobRow) -> str:
    """The job's version as an entity tag."""
    return f'"{row.version}"'
