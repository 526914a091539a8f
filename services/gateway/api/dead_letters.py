"""Records that services could not take."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Response

from services.gateway.adapters.dead_letters import KEPT
from services.gateway.api.common import Door, Reader, answer, responses
from services.gateway.door import Gateway
from services.gateway.models.answers import DeadLetter, DeadLetterList
from services.gateway.problems import unavailable
from services.gateway.strict import StrictRoute

router = APIRouter(prefix="/v1", tags=["status"], route_class=StrictRoute)

_READ_WITHIN_S = 5.0

Limit = Annotated[int, Query(ge=1, le=KEPT, description="Most items; older ones are on the dead-letter topic.")]


@router.get("/deadletters", operation_id="listDeadLetters", responses=responses("DeadLetterList"))
async def list_dead_letters(gateway: Door, caller: Reader, limit: Limit = KEPT) -> Response:
    """Records that a service could not take, the newest first: impossible in its state, or not to be read.

    Such a record has changed nothing in that service. Of those about a job, the job's story tells what came before.
    """
    await _require_whole(gateway)
    letters = gateway.dead_letters
    items = [
        DeadLetter(
            offset=letter.offset,
            time_s=letter.time_s,
            service=letter.service,
            type=letter.event_type,
            event_id=letter.event_id,
            subject=letter.subject,
            job_id=letter.job_id,
            record=letter.record,
            error=letter.error,
        )
        for letter in letters.newest(limit)
    ]
    return answer(DeadLetterList(total=letters.total, items=items))


async def _require_whole(gateway: Gateway) -> None:
    """A count of the part that has been read so far would be wrong, and a 0 the worst of it."""
    try:
        async with asyncio.timeout(_READ_WITHIN_S):
            await gateway.dead_letters.caught_up.wait()
    except TimeoutError:
        raise unavailable("the dead letters are still being read, or the log cannot be reached") from None
