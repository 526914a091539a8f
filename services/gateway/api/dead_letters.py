"""Records that services could not take."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from libs.bus.port import BusUnavailable, Message
from libs.contracts.gateway import DeadLetterRetried
from libs.runtime.deadletter import Letter, letter, original
from services.gateway.adapters.dead_letters import KEPT
from services.gateway.api.callers import Admin, Reader
from services.gateway.api.common import Door, answer, append, is_accepted, responses, said_of
from services.gateway.door import Gateway
from services.gateway.models.answers import DeadLetter, DeadLetterDetail, DeadLetterList, Requested
from services.gateway.problems import Problem, not_found, unavailable
from services.gateway.strict import StrictRoute

router = APIRouter(prefix="/v1", tags=["status"], route_class=StrictRoute)

_READ_WITHIN_S = 5.0

Limit = Annotated[int, Query(ge=1, le=KEPT, description="Most items; older ones are on the dead-letter topic.")]
Offset = Annotated[int, Path(ge=0, le=2**62, description="Of the dead letter on its topic.")]


@router.get("/deadletters", operation_id="listDeadLetters", responses=responses("DeadLetterList"))
async def list_dead_letters(gateway: Door, caller: Reader, limit: Limit = KEPT) -> Response:
    """Records that a service could not take, the newest first: impossible in its state, or not to be read.

    Such a record has changed nothing in that service. Of those about a job, the job's story tells what came before.
    """
    await _require_whole(gateway)
    letters = gateway.dead_letters
    items = [DeadLetter(**_about(letter)) for letter in letters.newest(limit)]
    return answer(DeadLetterList(total=letters.total, items=items))


@router.get("/deadletters/{offset}", operation_id="getDeadLetter", responses=responses("DeadLetterDetail", 404))
async def get_dead_letter(gateway: Door, caller: Reader, offset: Offset) -> Response:
    """A dead letter, whole: the record with its headers, and whether it can be given to its service once more."""
    message = await _find(gateway, offset)
    try:
        original(message)
        why_not = ""
    except ValueError as error:
        why_not = str(error)
    found = DeadLetterDetail(
        **_about(letter(message)),
        key=message.key,
        headers={name: value.decode(errors="replace") for name, value in message.headers},
        value=message.value.decode(errors="replace"),
        retryable=not why_not,
        why_not=why_not,
    )
    return answer(found)


@router.post(
    "/deadletters/{offset}/retry",
    operation_id="retryDeadLetter",
    status_code=202,
    responses=responses("Requested", 404, 409, 507, status=202, also="Requested"),
)
async def retry_dead_letter(gateway: Door, caller: Admin, offset: Offset) -> Response:
    """Append the record of a dead letter to its topic once more, for the service that could not take it.

    For records that could not be read, after the service was upgraded. It happens once: 200 when it was done before.
    409 for records of control: these are no longer unread, but impossible in the state of their service.
    """
    message = await _find(gateway, offset)
    try:
        record = original(message)
    except ValueError as error:
        raise Problem("conflict", f"dead letter {offset} cannot be retried: {error}") from None
    about = letter(message)
    event = DeadLetterRetried(
        service=about.service, record=about.record, event_id=about.event_id, requested_by=caller.name
    )
    key = f"dead letter {about.service} {about.record}"  # with spaces, which no client's key has
    async with gateway.lock(key):
        if await is_accepted(gateway, key, event):
            return answer(Requested(id=about.record, event=None, offset=None), 200)
        # The record first: a failure in between leads to a repetition, and not to a loss. Its readers know its id.
        try:
            await gateway.dead_letters.again(record)
        except BusUnavailable as error:
            raise unavailable(f"{error}; whether the record was appended is not known") from None
        taken = await append(gateway, key, event)
    body = Requested(id=about.record, event=event.wire_type, offset=taken.offset)
    return answer(body, 202, offset=taken.offset, headers=said_of(taken))


def _about(letter: Letter) -> dict[str, Any]:
    return {
        "offset": letter.offset,
        "time_s": letter.time_s,
        "service": letter.service,
        "type": letter.event_type,
        "event_id": letter.event_id,
        "subject": letter.subject,
        "job_id": letter.job_id,
        "record": letter.record,
        "error": letter.error,
    }


async def _find(gateway: Gateway, offset: int) -> Message:
    try:
        message = await gateway.dead_letters.message(offset)
    except BusUnavailable as error:
        raise unavailable(str(error)) from None
    if message is None:
        raise not_found("dead letter", str(offset), [])
    return message


async def _require_whole(gateway: Gateway) -> None:
    """A count of the part that has been read so far would be wrong, and a 0 the worst of it."""
    try:
        async with asyncio.timeout(_READ_WITHIN_S):
            await gateway.dead_letters.caught_up.wait()
    except TimeoutError:
        raise unavailable("the dead letters are still being read, or the log cannot be reached") from None
