"""What every route needs: the gateway, the principal, how fresh, and answers in one form."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import sqlalchemy as sa
from fastapi import Depends, Header, Path, Query, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import HTTPConnection

from libs.bus.port import BusUnavailable, MessageTooLarge
from libs.contracts.base import Event
from services.gateway.adapters.database import TooFarBehind, position_of
from services.gateway.adapters.intake import CONTROL, IdTaken, KeyReused, NoRoom, NotTaken, OutcomeInDoubt, Taken
from services.gateway.adapters.tokens import ANONYMOUS, Principal, Scope
from services.gateway.api.guard import came_by_tls
from services.gateway.door import Gateway
from services.gateway.problems import MEDIA_TYPE, Problem, invalid, nearest, no_room, shown, unavailable

T = TypeVar("T")

OFFSET_HEADER = "Sanjaya-Offset"
_CATCH_UP_S = 5.0
REFERENCE = r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}$"
OR_MEMBER = r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}(\[[0-9]{1,9}\])?$"
"""A reference, or `ARRAY[INDEX]`."""


def _gateway(request: Request) -> Gateway:
    gateway: Gateway = request.app.state.gateway
    return gateway


async def door(request: Request) -> Gateway:
    """The gateway that this application belongs to."""
    return _gateway(request)


Door = Annotated[Gateway, Depends(door)]

_bearer = HTTPBearer(auto_error=False, description="A token of the cell. Not needed where none are configured.")


_NO_TOKEN = (
    "the request has no bearer token: send `Authorization: Bearer TOKEN`. The token of a cell that `sanjaya up` keeps "
    "is in the file `token` of its state directory, for its user; `sanjaya page` prints a link for a browser"
)


Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


async def principal(request: Request, credentials: Credentials) -> Principal:
    """The sender of the request.

    Raises:
        Problem: 401: no token, or an unknown one; 403: a browser's request comes from another page.
    """
    gateway = _gateway(request)
    if credentials is None and (owner := _of_browser(gateway, request)) is not None:
        return owner
    return _known(gateway, request, credentials.credentials if credentials is not None else None)


def sender(gateway: Gateway, connection: HTTPConnection) -> Principal:
    """As `principal`, of a request that is no HTTP request any more: a WebSocket. No browser has to open one.

    Raises:
        Problem: 401.
    """
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    return _known(gateway, connection, token.strip() if scheme.lower() == "bearer" else None)


def _of_browser(gateway: Gateway, request: Request) -> Principal | None:
    """The owner of the token that a browser's cookie stands for.

    Raises:
        Problem: 403: the request changes something, and comes from another page: browsers send a host's cookies to
            all of its ports, and with requests of the pages of all of its ports.
    """
    cookie = request.cookies.get(gateway.browsers.cookie)
    token_id = gateway.browsers.token_id(cookie) if cookie is not None else None
    owner = gateway.tokens.by_id(token_id) if gateway.tokens is not None and token_id is not None else None
    asks = request.method in ("GET", "HEAD", "OPTIONS")
    origin = urlsplit(request.headers.get("origin", "")).netloc
    if owner is not None and not asks and origin != request.headers.get("host"):
        raise Problem("forbidden", "the request comes from a page of another site")
    return owner


def _known(gateway: Gateway, connection: HTTPConnection, token: str | None) -> Principal:
    if gateway.tokens is None and not came_by_tls(connection.scope):
        return ANONYMOUS
    challenge = {"WWW-Authenticate": 'Bearer realm="sanjaya"'}
    if token is None:
        raise Problem("unauthenticated", _NO_TOKEN, headers=challenge)
    known = (gateway.tokens, gateway.agent_tokens)
    found = next((owner for tokens in known if tokens is not None and (owner := tokens.find(token))), None)
    if found is None:
        raise Problem("unauthenticated", "the token is not known here", headers=challenge)
    return found


def allowed(scope: Scope, *others: Scope) -> Any:
    """A dependency: the principal, which has this scope, or one of the others."""

    # Each dependency of a dependency costs every request as much as a look at its parameters does.
    async def check(request: Request, credentials: Credentials) -> Principal:
        caller = await principal(request, credentials)
        if not any(caller.may(each) for each in (scope, *others)):
            raise refuse_scope(caller, scope)
        return caller

    return Depends(check)


def refuse_scope(caller: Principal, scope: Scope) -> Problem:
    """403 for a principal without this scope."""
    has = ", ".join(sorted(caller.scopes)) or "none"
    return Problem("forbidden", f"{caller.name} lacks the scope {scope.value} (has {has})")


def require_tenant(caller: Principal, tenant: str) -> None:
    """Refuse a token that is not for this tenant.

    Raises:
        Problem: 403.
    """
    if not caller.is_for(tenant):
        own = ", ".join(sorted(caller.tenants or ()))
        raise Problem("forbidden", f"the token of {caller.name} is not for tenant {shown(tenant)} (it is for {own})")


Reader = Annotated[Principal, allowed(Scope.READ)]
Submitter = Annotated[Principal, allowed(Scope.SUBMIT)]
Operator = Annotated[Principal, allowed(Scope.OPERATE)]
Admin = Annotated[Principal, allowed(Scope.ADMIN)]
Agent = Annotated[Principal, allowed(Scope.AGENT)]
CodeReader = Annotated[Principal, allowed(Scope.READ, Scope.AGENT)]

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[\x21-\x7e]{1,255}$",
        description="The same key with the same request is the same request, however often it is sent.",
    ),
]
JobReference = Annotated[
    str,
    Path(
        pattern=OR_MEMBER,
        description="A job's id, the beginning of one, or its name; `ARRAY[7]`: of an array.",
        examples=["j-7f3akq2m5c3xw4np"],
    ),
]
GroupReference = Annotated[
    str,
    Path(
        pattern=REFERENCE,
        description="The id of an array or a DAG, the beginning of one, or its name.",
        examples=["a-3k7q2m5c7fab4npx"],
    ),
]
SweepReference = Annotated[
    str,
    Path(
        pattern=REFERENCE,
        description="A sweep's id, the beginning of one, or its name.",
        examples=["s-3k7q2m5c7fab4npx"],
    ),
]
Limit = Annotated[int, Query(ge=1, le=1000, description="Most items of one page.")]
Moment = Annotated[float | None, Query(ge=0, le=1e12, allow_inf_nan=False, description="Seconds since the epoch.")]
Cursor = Annotated[str | None, Query(max_length=64, description="`next_cursor` of the page before.")]


async def fresh(
    gateway: Door,
    at_least_offset: Annotated[
        int | None,
        Query(ge=0, le=2**62, description="Wait until the read models include this control offset (`Sanjaya-Offset`)."),
    ] = None,
    prefer: Annotated[
        str | None, Header(description="`wait=5`: wait at most 5 s until what is on the log now is included.")
    ] = None,
) -> None:
    """Wait for the read models, as far as the request asks for it.

    Raises:
        Problem: 503: the offset that was demanded is not included in time; 422: it is not on the log.
    """
    patience_s = _preferred_wait(prefer)
    if at_least_offset is not None:
        await _require_on_log(gateway, at_least_offset)
    longest_s = gateway.settings.longest_wait_s
    try:
        if at_least_offset is not None:
            await gateway.database.wait_for(at_least_offset + 1, min(patience_s or 5.0, longest_s))
        elif patience_s:
            await gateway.database.wait_for(gateway.feed.next_offset, min(patience_s, longest_s))
    except TooFarBehind as error:
        if at_least_offset is not None:
            raise unavailable(str(error), 1) from None


async def _require_on_log(gateway: Gateway, offset: int) -> None:
    """Waiting for what was never appended would be in vain."""
    known = max(gateway.feed.next_offset, gateway.intake.next_offset)
    if offset >= known:
        known = await gateway.bus.end_offset(CONTROL)
    if offset >= known:
        raise invalid("at_least_offset", f"the log ends before {known}", offset, where="query")


def _preferred_wait(prefer: str | None) -> float | None:
    for preference in (prefer or "").split(","):
        name, _, value = preference.partition("=")
        if name.strip().lower() == "wait" and value.strip().strip('"').isdecimal():
            return float(value.strip().strip('"')[:6])
    return None


Fresh = Depends(fresh)


def stretch(gateway: Gateway, since_s: float | None, until_s: float | None) -> tuple[float, float]:
    """From when until when: by default from the beginning of the log until now, and never beyond now.

    Raises:
        Problem: 422: it ends before it begins.
    """
    now_s = gateway.now()
    begin_s, end_s = since_s or 0.0, now_s if until_s is None else min(until_s, now_s)
    if begin_s > end_s:
        raise invalid("since_s", "expected a time before until_s and before now", begin_s, where="query")
    return begin_s, end_s


async def look(gateway: Gateway, query: Callable[[sa.Connection], T]) -> tuple[T, int]:
    """Run a query over the read models.

    Returns:
        Its result, and the control offset up to which everything is included (-1: nothing yet).
    """

    def with_position(connection: sa.Connection) -> tuple[T, int]:
        position = position_of(connection)
        return query(connection), position - 1

    return await gateway.database.read(with_position)


def answer(
    content: Any, status: int = 200, *, offset: int | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """A JSON answer; `offset` is told in `Sanjaya-Offset`."""
    all_headers = dict(headers or {})
    if offset is not None:
        all_headers[OFFSET_HEADER] = str(offset)
    return Response(msgspec.json.encode(content), status, all_headers, "application/json")


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For the document: which problems a route answers with, besides those that every route has."""
    problem = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        status: {"description": "Problem", "content": problem} for status in sorted({*statuses, 401, 403, 422, 503})
    }


def responses(name: str, *other: int, status: int = 200, also: str = "") -> dict[int | str, dict[str, Any]]:
    """For the document: the answer of a route, and its problems.

    Args:
        name: schema of the answer with `status`.
        also: schema of another answer, with status 200.
    """

    def document(schema: str) -> dict[str, Any]:
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
        return {"description": schema, "content": content}

    answers: dict[int | str, dict[str, Any]] = {status: document(name)}
    if also:
        answers[200] = document(also)
    return answers | problems(*other)


def media(description: str, content: Mapping[str, Any], *other: int) -> dict[int | str, dict[str, Any]]:
    """For the document: an answer in several media types, and the route's problems."""
    return {200: {"description": description, "content": dict(content)}, **problems(*other)}


def scoped(key: str | None, caller: Principal) -> str:
    """What names a request: its key, within the realm of its sender; without a key it is one of a kind."""
    if key is None:
        return uuid.uuid4().hex
    return f"{caller.name}/{key}" if caller.authenticated else key


async def append(gateway: Gateway, key: str, event: Event) -> Taken:
    """Put a request on the log.

    Raises:
        Problem: 422 for a key that stands for something else, 409 for an id that is taken, 413, 507 while a disk is
            full, or 503 with what is known of the outcome.
    """
    try:
        return await gateway.intake.take(gateway.envelope(key, event))
    except KeyReused as error:
        raise Problem("key-reused", str(error)) from None
    except IdTaken as error:
        raise Problem("id-taken", f"{error}; nothing was appended, use another Idempotency-Key") from None
    except OutcomeInDoubt as error:
        raise Problem("unknown-outcome", str(error), headers={"Retry-After": "2"}) from None
    except MessageTooLarge as error:
        raise Problem("too-large", str(error)) from None
    except NoRoom as error:
        raise no_room(f"{error}; nothing was appended") from None
    except (NotTaken, BusUnavailable) as error:
        raise unavailable(f"{error}; nothing was appended") from None


async def is_accepted(gateway: Gateway, key: str, event: Event) -> bool:
    """Whether this request is on the log already.

    Raises:
        Problem: 503: it cannot be told now.
    """
    try:
        return await gateway.intake.known(gateway.envelope(key, event).id) is not None
    except NotTaken as error:
        raise unavailable(f"{error}; nothing was appended") from None


async def caught_up(gateway: Gateway, next_offset: int) -> None:
    """Wait until the read models include what is on the log.

    Raises:
        Problem: 503: they are too far behind to tell.
    """
    try:
        await gateway.database.wait_for(next_offset, _CATCH_UP_S)
    except TooFarBehind as error:
        raise unavailable(str(error), 1) from None


def said_of(taken: Taken, location: str | None = None) -> dict[str, str]:
    """Headers of an answer to a request that was appended: what it was about, and whether it had been before."""
    headers = {"Location": location} if location is not None else {}
    return headers | ({"Idempotent-Replayed": "true"} if taken.repeated else {})


def next_page(path: str, cursor: str | None, limit: int) -> dict[str, str] | None:
    """Headers of a page of a list: where the next one is; None when this is the last."""
    return {"Link": f'<{path}?cursor={cursor}&limit={limit}>; rel="next"'} if cursor else None


def require_code(gateway: Gateway, code_id: str | None, pointer: str) -> None:
    """Refuse a request for code that was never uploaded.

    Raises:
        Problem: 422, at `pointer`.
    """
    if code_id is not None and gateway.code.path(code_id) is None:
        raise invalid(pointer, "no such upload; send it with POST /v1/code first", code_id)


def cursor_of(offset: int) -> str:
    """An opaque cursor for the page behind an offset."""
    return f"o{offset:x}"


def offset_of(cursor: str | None) -> int | None:
    """What `cursor_of` was given.

    Raises:
        Problem: 422: not one of ours.
    """
    if cursor is None:
        return None
    try:
        if not cursor.startswith("o") or len(cursor) > 17:
            raise ValueError
        return int(cursor[1:], 16)
    except ValueError:
        error = {"pointer": "cursor", "in": "query", "message": "no cursor of this list", "value": shown(cursor)}
        raise Problem("invalid", "cursor: no cursor of this list", errors=[error]) from None


def one_of(names: list[str], known: tuple[str, ...], parameter: str) -> None:
    """Refuse names that are none of the known.

    Raises:
        Problem: 422, with what was probably meant.
    """
    for name in names:
        if name not in known:
            near = nearest(name, known)
            message = f"unknown; expected one of {', '.join(known)}"
            error = {"pointer": parameter, "in": "query", "message": message, "value": shown(name)}
            if near:
                error["did_you_mean"] = near
            raise Problem("invalid", f"{parameter}: {shown(name)} is {message}", errors=[error], did_you_mean=near)
