"""Bodies are read with a limit and parsed without mercy: what is ambiguous or cannot be stored is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from fastapi import Request, Response, params
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute

from services.gateway.problems import Problem, nearest, shown

MAX_DEPTH = 32
_DISCARDED_BYTES = 256 * 1024 * 1024
"""So much of an oversized body is read and thrown away, so that its sender gets to see the answer."""


class StrictRequest(Request):
    """A request with a limited body (`max_body_bytes` of the application) and unambiguous JSON."""

    async def body(self) -> bytes:
        """The whole body.

        Raises:
            Problem: it is over the limit, or of another media type.
        """
        if not hasattr(self, "_body"):
            limit: int = self.app.state.gateway.settings.max_body_bytes
            chunks: list[bytes] = []
            size = 0
            async for chunk in limited(self, limit):
                size += len(chunk)
                chunks.append(chunk)
            self._body = b"".join(chunks)
            if self._body:
                _require_json(self)
        return self._body

    async def json(self) -> Any:
        """The body as JSON.

        Raises:
            Problem: it is no UTF-8, no JSON, or JSON of which two readers could think differently.
        """
        if not hasattr(self, "_json"):
            self._json = parse(await self.body())
        return self._json


class StrictRoute(APIRoute):
    """The route class of every endpoint."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The endpoint, called with a `StrictRequest`.

        A query parameter that it does not know is refused: a misspelt filter would otherwise show everything.
        """
        handler = super().get_route_handler()
        known = tuple(f.alias for f in get_flat_params(self.dependant) if isinstance(f.field_info, params.Query))

        async def strict(request: Request) -> Response:
            _require_known(list(request.query_params), known)
            return await handler(StrictRequest(request.scope, request.receive))

        return strict


def _require_known(names: list[str], known: tuple[str, ...]) -> None:
    errors: list[dict[str, Any]] = []
    for name in names:
        if name not in known:
            error = {"pointer": shown(name), "in": "query", "message": "unknown parameter", "value": shown(name)}
            near = nearest(name, known)
            errors.append(error | ({"did_you_mean": near} if near else {}))
    if errors:
        meant = errors[0].get("did_you_mean")
        hint = f' (did you mean "{meant}"?)' if meant else ""
        detail = f"{errors[0]['pointer']}: unknown parameter{hint}"
        raise Problem("invalid", detail, errors=errors, did_you_mean=meant)


async def limited(request: Request, limit: int) -> Any:
    """The body's chunks, as they come.

    Raises:
        Problem: there is more than `limit` bytes.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        if "100-continue" not in request.headers.get("expect", "").lower():
            await _discard(request, 0)
        raise _too_large(limit, f"{declared} bytes")
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            await _discard(request, size)
            raise _too_large(limit, f"more than {limit} bytes")
        yield chunk


async def _discard(request: Request, size: int) -> None:
    message = await request.receive()
    while message["type"] == "http.request" and message.get("more_body") and size < _DISCARDED_BYTES:
        size += len(message.get("body", b""))
        message = await request.receive()


def _too_large(limit: int, size: str) -> Problem:
    return Problem("too-large", f"the body has {size}; at most {limit} are accepted", headers={"Connection": "close"})


def _require_json(request: Request) -> None:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise Problem("media-type", f"the body is {shown(media_type) or 'of no media type'}; expected application/json")


def parse(body: bytes) -> Any:
    """Read JSON, strictly.

    Raises:
        Problem: bad UTF-8, bad JSON, NaN or Infinity, a key twice in one object, nesting deeper than
            `MAX_DEPTH`, or a string that cannot be stored (NUL, half of a surrogate pair).
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise Problem("malformed", f"the body is not UTF-8: byte {error.start} is {body[error.start]:#04x}") from None
    try:
        value = json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise Problem("malformed", f"the body is not JSON: {error.msg} at {place}") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:  # an integer of more digits than Python converts
        raise Problem("malformed", f"the body has a number that cannot be read: {error}") from None
    errors = list(_unstorable(value, "", 0))
    if errors:
        raise Problem("invalid", f"{errors[0]['pointer']}: {errors[0]['message']}", errors=errors[:20])
    return value


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for name, value in pairs:
            if name in seen:
                error = {"pointer": f"/{name}", "in": "body", "message": "given twice", "value": shown(value)}
                raise Problem("malformed", f'the body has "{shown(name)}" twice in one object', errors=[error])
            seen.add(name)
    return members


def _no_constant(name: str) -> NoReturn:
    raise Problem("malformed", f"the body has {name}, which is not JSON; expected a number")


def _too_deep() -> Problem:
    return Problem("malformed", f"the body is nested deeper than {MAX_DEPTH} levels")


def _unstorable(value: Any, pointer: str, depth: int) -> Any:
    """Errors for strings that SQL or UTF-8 cannot carry, anywhere in the value."""
    if depth > MAX_DEPTH:
        raise _too_deep()
    if isinstance(value, str):
        if message := _defect(value):
            yield {"pointer": pointer, "in": "body", "message": message, "value": shown(value)}
    elif isinstance(value, dict):
        for name, member in value.items():
            place = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
            if message := _defect(name):
                yield {"pointer": shown(place), "in": "body", "message": f"the name {message}", "value": shown(name)}
            else:
                yield from _unstorable(member, place, depth + 1)
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from _unstorable(member, f"{pointer}/{index}", depth + 1)


def _defect(text: str) -> str:
    if "\0" in text:
        return "contains a NUL character"
    if any("\ud800" <= character <= "\udfff" for character in text) if not text.isascii() else False:
        return "contains half of a surrogate pair"
    return ""
