"""Arrays and DAGs: submitted, found, and changed as a whole."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa
from fastapi import APIRouter, Response

from libs.contracts.gateway import DagArrived, GroupChangeRequested
from libs.contracts.groups import DAG_PREFIX, Dependency, GroupChange, GroupMember
from libs.contracts.read_models import GroupRow, JobState
from libs.kernel.ids import member_id, short_id
from services.gateway.adapters import group_queries
from services.gateway.adapters.tokens import Principal
from services.gateway.api.callers import Reader, Submitter, require_tenant
from services.gateway.api.common import (
    Cursor,
    Door,
    Fresh,
    GroupReference,
    IdempotencyKey,
    Limit,
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
from services.gateway.api.dependencies import resolved
from services.gateway.api.finding import find_group
from services.gateway.core import group_views
from services.gateway.core.idempotency import request_digest
from services.gateway.door import Gateway
from services.gateway.models.answers import Group, GroupList, Requested, Submitted
from services.gateway.models.group_request import DagRequest
from services.gateway.models.requests import CancelRequest, GroupPatch
from services.gateway.problems import Problem
from services.gateway.strict import StrictRoute

router = APIRouter(prefix="/v1", tags=["arrays and DAGs"], route_class=StrictRoute)


@router.post(
    "/dags",
    operation_id="submitDag",
    status_code=201,
    responses=responses("Submitted", 400, 409, 413, 415, 507, status=201),
)
async def submit_dag(gateway: Door, caller: Submitter, body: DagRequest, key: IdempotencyKey = None) -> Response:
    """Accept jobs with dependencies between them, all or none. From the answer on none of them is lost."""
    for number, job in enumerate(body.jobs):
        require_code(gateway, job.code_id, f"/jobs/{number}/code_id")
        require_tenant(caller, job.tenant)
    key = scoped(key, caller)
    group_id = short_id(DAG_PREFIX, key)
    ids = {job.name: member_id(group_id, job.name) for job in body.jobs}
    members = [GroupMember(job_id=ids[job.name], spec=job.spec(caller.name)) for _, job in body.in_order()]
    event = DagArrived(
        group_id=group_id,
        name=body.name,
        jobs=members,
        submitted_by=caller.name,
        request_digest=request_digest(body.canonical()),
    )
    if not await is_accepted(gateway, key, event):
        event = msgspec.structs.replace(event, jobs=await _with_dependencies(gateway, body, ids, members))
    taken = await append(gateway, key, event)
    accepted = Submitted(
        id=taken.subject,
        name=body.name,
        tenant=members[0].spec.tenant,
        gpus=max(member.spec.gpus.count for member in members),
        state=JobState.QUEUED,
        offset=taken.offset,
        url=f"/v1/groups/{taken.subject}",
        jobs=len(members),
        members={name: member_id(taken.subject, name) for name in ids},
    )
    return answer(accepted, 201, offset=taken.offset, headers=said_of(taken, accepted.url))


async def _with_dependencies(
    gateway: Gateway, body: DagRequest, ids: dict[str, str], members: list[GroupMember]
) -> list[GroupMember]:
    """The jobs with what each waits for: jobs of the DAG by name, and others that were accepted before."""
    found = []
    for (number, job), member in zip(body.in_order(), members, strict=True):
        inside = [Dependency(on=ids[after.on], condition=after.condition) for after in job.after if after.on in ids]
        outside = await resolved(gateway, job.after, f"/jobs/{number}/after", known=ids)
        found.append(msgspec.structs.replace(member, after=inside + outside))
    return found


@router.get("/groups", operation_id="listGroups", dependencies=[Fresh], responses=responses("GroupList"))
async def list_groups(gateway: Door, caller: Reader, limit: Limit = 100, cursor: Cursor = None) -> Response:
    """Arrays and DAGs, newest first, page by page."""
    after = offset_of(cursor)

    def query(connection: sa.Connection) -> tuple[list[GroupRow], dict[str, dict[str, int]]]:
        rows = group_queries.page(connection, limit=limit + 1, after=after)
        return rows, group_queries.counts(connection, [row.id for row in rows[:limit]])

    (rows, counts), offset = await look(gateway, query)
    items = [Group(**group_views.group(row, counts[row.id])) for row in rows[:limit]]
    next_cursor = cursor_of(rows[limit - 1].arrived_offset) if len(rows) > limit else None
    headers = next_page("/v1/groups", next_cursor, limit)
    return answer(GroupList(items=items, next_cursor=next_cursor), offset=offset, headers=headers)


@router.get("/groups/{group}", operation_id="getGroup", dependencies=[Fresh], responses=responses("Group", 404, 409))
async def get_group(gateway: Door, caller: Reader, group: GroupReference) -> Response:
    """One array or DAG, with how many of its jobs are how. Its jobs: `GET /v1/jobs?array=` or `?dag=`."""
    group_id = (await find_group(gateway, group)).id
    found, offset = await look(gateway, lambda connection: _found(connection, group_id))
    return answer(found, offset=offset)


def _found(connection: sa.Connection, group_id: str) -> Group:
    row = group_queries.group(connection, group_id)
    assert row is not None, "an array or a DAG does not vanish"
    return Group(**group_views.group(row, group_queries.counts(connection, [group_id])[group_id]))


@router.post(
    "/groups/{group}/cancel",
    operation_id="cancelGroup",
    status_code=202,
    responses=responses("Requested", 400, 404, 409, 413, 415, 507, status=202),
)
async def cancel(
    gateway: Door,
    caller: Submitter,
    group: GroupReference,
    body: CancelRequest | None = None,
    key: IdempotencyKey = None,
) -> Response:
    """Cancel all jobs that have not ended. 409 when all have."""
    body = body or CancelRequest()
    event = _change(group, GroupChange.CANCEL, caller, grace_s=body.grace_s, note=body.note)
    return await _ask(gateway, caller, event, scoped(key, caller))


@router.post(
    "/groups/{group}/pause",
    operation_id="pauseGroup",
    status_code=202,
    responses=responses("Requested", 404, 409, 507, status=202),
)
async def pause(gateway: Door, caller: Submitter, group: GroupReference, key: IdempotencyKey = None) -> Response:
    """Hold all jobs that have not ended. 409 when all have."""
    return await _ask(gateway, caller, _change(group, GroupChange.PAUSE, caller), scoped(key, caller))


@router.post(
    "/groups/{group}/resume",
    operation_id="resumeGroup",
    status_code=202,
    responses=responses("Requested", 404, 409, 507, status=202),
)
async def resume(gateway: Door, caller: Submitter, group: GroupReference, key: IdempotencyKey = None) -> Response:
    """Let all held jobs go on. 409 when all have ended."""
    return await _ask(gateway, caller, _change(group, GroupChange.RESUME, caller), scoped(key, caller))


@router.patch(
    "/groups/{group}",
    operation_id="changeGroup",
    status_code=202,
    responses=responses("Requested", 400, 404, 409, 413, 415, 507, status=202),
)
async def change(
    gateway: Door, caller: Submitter, group: GroupReference, body: GroupPatch, key: IdempotencyKey = None
) -> Response:
    """Change the priority of all jobs that have not ended. 409 when all have."""
    event = _change(group, GroupChange.PRIORITY, caller, priority=body.priority)
    return await _ask(gateway, caller, event, scoped(key, caller))


def _change(
    group: str, change: GroupChange, caller: Principal, *, priority: int = 0, grace_s: float = 10.0, note: str = ""
) -> GroupChangeRequested:
    """The request; about what, in the user's words, is looked up when it is asked."""
    return GroupChangeRequested(
        group_id=group, change=change, requested_by=caller.name, priority=priority, grace_s=grace_s, note=note
    )


async def _ask(gateway: Gateway, caller: Principal, wanted: GroupChangeRequested, key: str) -> Response:
    row = await find_group(gateway, wanted.group_id)
    require_tenant(caller, row.tenant)
    event = msgspec.structs.replace(wanted, group_id=row.id)
    async with gateway.lock(row.id):
        if not await is_accepted(gateway, key, event):
            counts = await gateway.database.read(lambda connection: group_queries.counts(connection, [row.id]))
            if group_views.has_ended(row.size, counts[row.id]):
                raise Problem("conflict", f"all jobs of {row.id} have ended; nothing can be asked of them any more")
        taken = await append(gateway, key, event)
    body = Requested(id=row.id, event=event.wire_type, offset=taken.offset)
    return answer(body, 202, offset=taken.offset, headers=said_of(taken, f"/v1/groups/{row.id}"))
