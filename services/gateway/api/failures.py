"""What has failed, and of what."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from libs.contracts.gateway import InputReleaseRequested
from services.gateway.adapters.failure_queries import FailedBy, failed, grouped, in_quarantine
from services.gateway.api.callers import Operator, Reader
from services.gateway.api.common import (
    Door,
    Fresh,
    IdempotencyKey,
    Moment,
    answer,
    append,
    look,
    responses,
    said_of,
    scoped,
    stretch,
)
from services.gateway.models.answers import FailureList, Requested
from services.gateway.models.requests import ReleaseRequest
from services.gateway.problems import not_found
from services.gateway.strict import StrictRoute

router = APIRouter(prefix="/v1", tags=["status"], route_class=StrictRoute)

By = Annotated[FailedBy, Query(description="What failed attempts are put together by.")]


@router.post(
    "/failures/release",
    operation_id="releaseInput",
    status_code=202,
    responses=responses("Requested", 400, 404, 413, 415, 507, status=202),
)
async def release(gateway: Door, caller: Operator, body: ReleaseRequest, key: IdempotencyKey = None) -> Response:
    """Let jobs run again that name an input in quarantine."""
    held = await gateway.database.read(in_quarantine)
    if body.input not in held:
        raise not_found("quarantined input", body.input, held)
    event = InputReleaseRequested(input=body.input, requested_by=caller.name)
    taken = await append(gateway, scoped(key, caller), event)
    said = Requested(id=event.subject, event=event.wire_type, offset=taken.offset)
    return answer(said, 202, offset=taken.offset, headers=said_of(taken))


@router.get("/failures", operation_id="listFailures", dependencies=[Fresh], responses=responses("FailureList"))
async def list_failures(
    gateway: Door, caller: Reader, by: By = FailedBy.REASON, since_s: Moment = None, until_s: Moment = None
) -> Response:
    """Attempts that failed within a stretch of time: how many, of how many jobs and users, how soon, on how many GPUs.

    Without `since_s` from the beginning of the log on, without `until_s` until now.
    """
    begin_s, end_s = stretch(gateway, since_s, until_s)
    trials, offset = await look(gateway, lambda connection: failed(connection, begin_s, end_s))
    found = FailureList(
        items=grouped(trials, by),
        trials=len(trials),
        gpu_s=sum(trial.gpu_s for trial in trials),
        since_s=begin_s,
        until_s=end_s,
    )
    return answer(found, offset=offset)
