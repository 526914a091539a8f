"""What users may ask of a job: cancel, pause, resume, change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated

from fastapi import APIRouter, Header, Response

from libs.contracts.base import Event
from libs.contracts.gateway import (
    JobCancelRequested,
    JobCodeChanged,
    JobMaxGpusChanged,
    JobPauseRequested,
    JobPriorityChanged,
    JobResumeRequested,
    LimitsRequested,
)
from libs.contracts.read_models import FINAL_STATES, JobRow
from libs.kernel.words import bytes_of
from services.gateway.adapters import cluster_queries
from services.gateway.adapters.intake import CONTROL, Taken
from services.gateway.adapters.tokens import Principal
from services.gateway.api.callers import Operator, Submitter
from services.gateway.api.common import (
    Door,
    IdempotencyKey,
    JobReference,
    answer,
    append,
    caught_up,
    is_accepted,
    look,
    require_code,
    responses,
    said_of,
    scoped,
)
from services.gateway.api.finding import find_job, own_job
from services.gateway.api.jobs import detail, etag
from services.gateway.door import Gateway
from services.gateway.models.answers import Requested
from services.gateway.models.requests import CancelRequest, CodeChange, JobLimits, JobPatch
from services.gateway.problems import Problem, invalid
from services.gateway.strict import StrictRoute

router = APIRouter(prefix="/v1/jobs/{job}", tags=["jobs"], route_class=StrictRoute)

IfMatch = Annotated[
    str | None, Header(alias="If-Match", description="The ETag that the change was decided on; another one: 412.")
]

Needless = Callable[[JobRow], bool]
Ended = Callable[[JobRow], Problem]
"""How a request about a job that has ended is refused."""


@router.delete(
    "",
    operation_id="deleteJob",
    status_code=202,
    responses=responses("Requested", 404, 409, 412, 507, status=202, also="Requested"),
)
async def delete(
    gateway: Door, caller: Submitter, job: JobReference, key: IdempotencyKey = None, if_match: IfMatch = None
) -> Response:
    """Cancel a job with the default grace. Nothing is ever deleted: the log keeps the job's story."""
    return await _cancel(gateway, caller, job, CancelRequest(), key, if_match)


@router.post(
    "/cancel",
    operation_id="cancelJob",
    status_code=202,
    responses=responses("Requested", 400, 404, 409, 412, 413, 415, 507, status=202, also="Requested"),
)
async def cancel(
    gateway: Door,
    caller: Submitter,
    job: JobReference,
    body: CancelRequest | None = None,
    key: IdempotencyKey = None,
    if_match: IfMatch = None,
) -> Response:
    """Cancel a job. 200 when that was asked for before, 409 when it has ended."""
    return await _cancel(gateway, caller, job, body or CancelRequest(), key, if_match)


async def _cancel(
    gateway: Gateway, caller: Principal, job: str, body: CancelRequest, key: str | None, if_match: str | None
) -> Response:
    row = await own_job(gateway, caller, job)
    event = JobCancelRequested(job_id=row.id, requested_by=caller.name, grace_s=body.grace_s, note=body.note)
    return await _ask(gateway, row, scoped(key, caller), event, if_match, lambda now: now.cancel_requested)


@router.post(
    "/pause",
    operation_id="pauseJob",
    status_code=202,
    responses=responses("Requested", 404, 409, 412, 507, status=202, also="Requested"),
)
async def pause(
    gateway: Door, caller: Submitter, job: JobReference, key: IdempotencyKey = None, if_match: IfMatch = None
) -> Response:
    """Pause a job: one that waits is not placed; one that runs is suspended and gives its GPUs up, if it can."""
    row = await own_job(gateway, caller, job)
    event = JobPauseRequested(job_id=row.id, requested_by=caller.name)
    return await _ask(gateway, row, scoped(key, caller), event, if_match, lambda now: now.held)


@router.post(
    "/resume",
    operation_id="resumeJob",
    status_code=202,
    responses=responses("Requested", 404, 409, 412, 507, status=202, also="Requested"),
)
async def resume(
    gateway: Door, caller: Submitter, job: JobReference, key: IdempotencyKey = None, if_match: IfMatch = None
) -> Response:
    """Let a paused job go on in its turn, as soon as there are GPUs for it."""
    row = await own_job(gateway, caller, job)
    event = JobResumeRequested(job_id=row.id, requested_by=caller.name)
    return await _ask(gateway, row, scoped(key, caller), event, if_match, lambda now: not now.held)


@router.put(
    "/limits",
    operation_id="limitJob",
    status_code=202,
    responses=responses("Requested", 400, 404, 409, 412, 413, 415, 507, status=202, also="Requested"),
)
async def limit(
    gateway: Door,
    caller: Operator,
    job: JobReference,
    body: JobLimits,
    key: IdempotencyKey = None,
    if_match: IfMatch = None,
) -> Response:
    """Bound what a job may have of each of its GPUs, beside what coordination gives it, or lift that.

    Each request replaces the one before it. 422 for a job that has ended.
    """
    row = await own_job(gateway, caller, job)
    await _require_smaller_than_gpus(gateway, body.memory_limit_bytes)
    event = LimitsRequested(
        job_id=row.id,
        memory_limit_bytes=body.memory_limit_bytes,
        compute_share_ratio=body.compute_share_ratio,
        requested_by=caller.name,
    )
    return await _ask(gateway, row, scoped(key, caller), event, if_match, lambda now: False, _has_no_gpus)


async def _require_smaller_than_gpus(gateway: Gateway, limit_bytes: int | None) -> None:
    """Refuse a limit that no GPU of the cell has memory for; a cell without GPUs refuses none.

    Raises:
        Problem: 422.
    """
    if limit_bytes is None:
        return
    gpus, _ = await look(gateway, cluster_queries.all_gpus)
    most = max((gpu.memory_bytes for gpu in gpus if gpu.present), default=limit_bytes)
    if limit_bytes > most:
        message = f"expected at most {most} bytes ({bytes_of(most)}), which the largest GPU of the cell has"
        raise invalid("/memory_limit_bytes", message, limit_bytes)


@router.patch("", operation_id="changeJob", responses=responses("JobDetail", 400, 404, 409, 412, 413, 415, 507))
async def change(
    gateway: Door,
    caller: Submitter,
    job: JobReference,
    body: JobPatch,
    key: IdempotencyKey = None,
    if_match: IfMatch = None,
) -> Response:
    """Change a job's priority, or the most GPUs that an elastic job may have; with `If-Match` only if nothing has
    changed since. Answers the changed job.
    """
    row = await own_job(gateway, caller, job)
    if body.max_gpus is not None:
        _require_width(row, body.max_gpus)
    key = scoped(key, caller)
    async with gateway.lock(row.id):
        for name, event in _changes(row, body, caller):
            taken = await _append_once(gateway, row, f"{key}{name}", event, if_match, lambda now: False)
            if_match = None  # the next one is of the same request
            if taken is not None:
                await caught_up(gateway, taken.offset + 1)
    return await detail(gateway, row.id)


def _changes(row: JobRow, body: JobPatch, caller: Principal) -> Iterator[tuple[str, Event]]:
    """What distinguishes its key, and the event, for each thing that is to change."""
    if body.priority is not None:
        yield "", JobPriorityChanged(job_id=row.id, priority=body.priority, requested_by=caller.name)
    if body.max_gpus is not None:
        yield " max_gpus", JobMaxGpusChanged(job_id=row.id, max_gpus=body.max_gpus, requested_by=caller.name)


def _require_width(row: JobRow, max_gpus: int) -> None:
    """Refuse a bound that the job's range does not have.

    Raises:
        Problem: 422.
    """
    if not row.spec.get("elastic"):
        message = "the job is not elastic: it was submitted without a range, such as elastic 1:4"
        raise invalid("/max_gpus", message, max_gpus)
    if not row.gpus <= max_gpus <= row.widths[-1]:
        raise invalid("/max_gpus", f"expected from {row.gpus}, which it asks for, to {row.widths[-1]}", max_gpus)


@router.put("/code", operation_id="changeJobCode", responses=responses("JobDetail", 400, 404, 409, 412, 413, 415, 507))
async def change_code(
    gateway: Door,
    caller: Submitter,
    job: JobReference,
    body: CodeChange,
    key: IdempotencyKey = None,
    if_match: IfMatch = None,
) -> Response:
    """Have a job that was not placed yet start with another upload. Answers the changed job.

    409 when it was placed before, or runs in a directory of the nodes. A job that is placed in this very moment keeps
    what it had for that attempt.
    """
    require_code(gateway, body.code_id, "/code_id")
    row = await own_job(gateway, caller, job)
    event = JobCodeChanged(job_id=row.id, code_id=body.code_id, requested_by=caller.name)
    async with gateway.lock(row.id):
        await caught_up(gateway, await gateway.bus.end_offset(CONTROL))
        row = await find_job(gateway, row.id)
        if row.placed_s is not None:
            raise Problem("conflict", f"job {row.id} was placed before: files can be added to jobs that have not begun")
        if row.spec.get("working_dir") is not None:
            raise Problem("conflict", f"job {row.id} runs in {row.spec['working_dir']} of its node, not in an upload")
        unchanged = row.spec.get("code_id") == body.code_id
        taken = await _append_once(gateway, row, scoped(key, caller), event, if_match, lambda now: unchanged)
        if taken is not None:
            await caught_up(gateway, taken.offset + 1)
    return await detail(gateway, row.id)


def _nothing_can_be_asked(row: JobRow) -> Problem:
    return Problem("conflict", f"job {row.id} has ended ({row.state.value}); nothing can be asked of it any more")


def _has_no_gpus(row: JobRow) -> Problem:
    message = f"it has ended ({row.state.value}); expected one that has GPUs, or waits for them, to be bounded"
    return invalid("job", message, row.id, where="path")


async def _ask(
    gateway: Gateway,
    row: JobRow,
    key: str,
    event: Event,
    if_match: str | None,
    needless: Needless,
    ended: Ended = _nothing_can_be_asked,
) -> Response:
    async with gateway.lock(row.id):
        taken = await _append_once(gateway, row, key, event, if_match, needless, ended)
    if taken is None:
        return answer(Requested(id=row.id, event=None, offset=None), 200)
    body = Requested(id=row.id, event=event.wire_type, offset=taken.offset)
    return answer(body, 202, offset=taken.offset, headers=said_of(taken, f"/v1/jobs/{row.id}"))


async def _append_once(
    gateway: Gateway,
    row: JobRow,
    key: str,
    event: Event,
    if_match: str | None,
    needless: Needless,
    ended: Ended = _nothing_can_be_asked,
) -> Taken | None:
    """Append the request unless it is needless; a repeated one is answered as before, whatever has happened since.

    Raises:
        Problem: `ended`'s (409): the job has ended; 412: it has changed.
    """
    if not await is_accepted(gateway, key, event):
        if if_match is not None:
            await caught_up(gateway, await gateway.bus.end_offset(CONTROL))
            row = await find_job(gateway, row.id)
            _require_match(row, if_match)
        if row.state in FINAL_STATES:
            raise ended(row)
        if needless(row):
            return None
    return await append(gateway, key, event)


def _require_match(row: JobRow, if_match: str) -> None:
    tags = [tag.strip() for tag in if_match.split(",")]
    if etag(row) not in tags and "*" not in tags:
        detail = f"job {row.id} is at version {etag(row)}, the change was decided on {if_match[:100]}"
        raise Problem("changed", detail, headers={"ETag": etag(row)})
