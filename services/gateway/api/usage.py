"""How many GPU hours tenants, users and jobs have used."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from services.gateway.adapters.usage_queries import UsedBy, used
from services.gateway.api.callers import Reader
from services.gateway.api.common import Door, Fresh, Moment, answer, look, responses, stretch
from services.gateway.models.answers import UseList
from services.gateway.strict import StrictRoute

router = APIRouter(prefix="/v1", tags=["status"], route_class=StrictRoute)

By = Annotated[UsedBy, Query(description="What GPU time is summed over.")]


@router.get("/usage", operation_id="listUsage", dependencies=[Fresh], responses=responses("UseList"))
async def list_usage(
    gateway: Door, caller: Reader, by: By = UsedBy.TENANT, since_s: Moment = None, until_s: Moment = None
) -> Response:
    """GPU time within a stretch of time, by what has come of it, and how long jobs waited.

    Without `since_s` from the beginning of the log on, without `until_s` until now.
    """
    begin_s, end_s = stretch(gateway, since_s, until_s)
    items, offset = await look(gateway, lambda connection: used(connection, by, begin_s, end_s))
    return answer(UseList(items=items, since_s=begin_s, until_s=end_s), offset=offset)
