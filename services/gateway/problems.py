"""Every error is an RFC 9457 problem document that says what, where, and what was expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

MEDIA_TYPE = "application/problem+json"
_SHOWN = 200
"""Longest value, in characters, that is repeated in an answer."""


@dataclass(frozen=True)
class Kind:
    """A kind of problem. Its page is at `/problems/<slug>`."""

    slug: str
    status: int
    title: str
    meaning: str


KINDS = {
    kind.slug: kind
    for kind in (
        Kind("malformed", 400, "The request cannot be read", "The body is no JSON, or a header has no sense."),
        Kind("unauthenticated", 401, "Token needed", "Send `Authorization: Bearer <token>` with a token of this cell."),
        Kind("forbidden", 403, "Not allowed", "The token is known, but lacks the scope that the request needs."),
        Kind("not-found", 404, "There is no such thing", "Nothing of this cell has that id, name or path."),
        Kind(
            "method", 405, "Not with this method", "The path exists, the method does not; `Allow` lists those that do."
        ),
        Kind("not-acceptable", 406, "Not in this form", "None of the media types in `Accept` can be given."),
        Kind(
            "conflict",
            409,
            "That is not possible now",
            "The state of the thing does not allow it; the detail says why.",
        ),
        Kind(
            "fenced",
            409,
            "Another agent has taken over",
            "A newer agent of the same node holds the session: this one can never write again.",
        ),
        Kind(
            "offset-lost",
            410,
            "That part of the log was archived",
            "`lost` says where each partition begins now; reading from 0 on gives what is left.",
        ),
        Kind(
            "id-taken",
            409,
            "The id is taken",
            "A job or a sweep has the id that the key would give: nothing was appended; use another Idempotency-Key.",
        ),
        Kind(
            "changed",
            412,
            "It has changed meanwhile",
            "`If-Match` names an older version: read it again and decide anew.",
        ),
        Kind("too-large", 413, "Too large", "The body is over the limit that the detail names."),
        Kind("media-type", 415, "Not this media type", "The body must be of the media type that the detail names."),
        Kind("range", 416, "There is no such part", "`Range` must name one range of bytes that the file has."),
        Kind(
            "invalid", 422, "The request has wrong values", "`errors` lists each by its place, with what was expected."
        ),
        Kind("key-reused", 422, "This key was used for another request", "An Idempotency-Key stands for one request."),
        Kind(
            "internal",
            500,
            "A fault of the gateway",
            "Nothing was appended by this request. The gateway's log knows more.",
        ),
        Kind(
            "unavailable",
            503,
            "Not now",
            "The log or the read models cannot be reached; try again after `Retry-After`.",
        ),
        Kind(
            "disk-full",
            507,
            "A disk of the cell is full",
            "Nothing was appended or stored. What was accepted goes on; new work is taken when there is room again.",
        ),
        Kind("unknown-outcome", 503, "It may have been accepted", "Repeat with the same Idempotency-Key to find out."),
    )
}

_BY_STATUS = {400: "malformed", 404: "not-found", 405: "method", 406: "not-acceptable", 413: "too-large"}


class Problem(HTTPException):
    """Raise it anywhere below the HTTP layer; the answer is its document.

    Args:
        slug: one of `KINDS`.
        detail: one sentence about this very case.
        errors: what is wrong where: `pointer` (JSON pointer into the body, or the parameter's name),
            `in` (`body`, `query`, `path`, `header`), `message`, `value`, perhaps `did_you_mean`.
        did_you_mean: what was probably meant.
        headers: further response headers.
        more: further members of the document.
    """

    def __init__(
        self,
        slug: str,
        detail: str,
        *,
        errors: Sequence[Mapping[str, Any]] = (),
        did_you_mean: str | None = None,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        self.kind = KINDS[slug]
        self.errors, self.did_you_mean, self.more = list(errors), did_you_mean, dict(more or {})
        super().__init__(self.kind.status, detail, dict(headers) if headers else None)

    def document(self, instance: str) -> dict[str, Any]:
        """The problem document for a request to the path `instance`."""
        document: dict[str, Any] = {
            "type": f"/problems/{self.kind.slug}",
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
            "instance": instance,
        }
        if self.errors:
            document["errors"] = self.errors
        if self.did_you_mean:
            document["did_you_mean"] = self.did_you_mean
        return document | self.more

    def response(self, instance: str) -> Response:
        """The HTTP answer."""
        body = msgspec.json.encode(self.document(instance))
        return Response(body, self.kind.status, self.headers, MEDIA_TYPE)


def from_http_exception(error: HTTPException) -> Problem:
    """What the framework raised by itself (404, 405, …) as a problem."""
    if isinstance(error, Problem):
        return error
    slug = _BY_STATUS.get(error.status_code, "internal" if error.status_code >= 500 else "malformed")
    phrase = HTTPStatus(error.status_code).phrase
    detail = phrase if str(error.detail) == phrase else str(error.detail)
    return Problem(slug, detail, headers=error.headers)


def unavailable(detail: str, retry_after_s: int = 2) -> Problem:
    """503: try again later; nothing was appended."""
    return Problem("unavailable", detail, headers={"Retry-After": str(retry_after_s)})


def no_room(detail: str) -> Problem:
    """507: a disk of the cell is full; nothing was appended."""
    return Problem("disk-full", detail, headers={"Retry-After": "30"})


def not_found(what: str, name: str, known: Sequence[str] = (), hint: str = "") -> Problem:
    """404 for a named thing, with the nearest known name."""
    near = nearest(name, known)
    meant = f' (did you mean "{near}"?)' if near else ""
    return Problem("not-found", f'there is no {what} "{shown(name)}"{meant}{hint}', did_you_mean=near)


def invalid(pointer: str, message: str, value: Any, *, where: str = "body") -> Problem:
    """422 for one wrong value."""
    error = {"pointer": pointer, "in": where, "message": message, "value": shown(value)}
    return Problem("invalid", f"{pointer or where}: {message}", errors=[error])


def nearest(name: str, known: Sequence[str]) -> str | None:
    """The known name that was probably meant."""
    found = get_close_matches(name, known, 1, 0.6)
    return found[0] if found else None


def shown(value: Any) -> Any:
    """A value as it may be repeated in an answer: short, and safe to encode."""
    if isinstance(value, str):
        clean = value.encode(errors="replace").decode().replace("\0", "\\0")
        return clean if len(clean) <= _SHOWN else clean[:_SHOWN] + "…"
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -(2**53) < value < 2**53 else shown(_digits(value))
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    return shown(repr(value))


def _digits(value: int) -> str:
    bits = value.bit_length()
    return str(value) if bits < 1000 else f"an integer of {bits} bits"
