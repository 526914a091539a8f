"""Whatever goes wrong is answered with a problem document."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any, get_args

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response

from libs.bus.port import BusError
from services.gateway.adapters.database import ReadModelsAway
from services.gateway.problems import Problem, from_http_exception, nearest, not_found, shown, unavailable

log = logging.getLogger(__name__)

_SHOWN_ERRORS = 50


def install(app: FastAPI) -> None:
    """Answer every error of the application with a problem document."""

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        if not isinstance(error, Problem) and error.status_code in (404, 405):
            return _respond(request, _no_route(app, request))
        return _respond(request, from_http_exception(error))

    @app.exception_handler(RequestValidationError)
    async def invalid_request(request: Request, error: RequestValidationError) -> Response:
        return _respond(request, from_validation(request, error.errors(), error.body))

    @app.exception_handler(ReadModelsAway)
    async def read_models_away(request: Request, error: ReadModelsAway) -> Response:
        return _respond(request, unavailable(f"the read models cannot be read: {error}"))

    @app.exception_handler(BusError)
    async def bus_away(request: Request, error: BusError) -> Response:
        return _respond(request, unavailable(f"the log cannot be read: {error}"))

    @app.exception_handler(Exception)
    async def fault(request: Request, error: Exception) -> Response:
        return _respond(request, Problem("internal", "an unexpected fault; the gateway's log has the traceback"))


def _respond(request: Request, problem: Problem) -> Response:
    return problem.response(request.url.path)


def _no_route(app: FastAPI, request: Request) -> Problem:
    """404 or 405 for what no route answers, with all methods that the path has."""
    path = request.url.path
    allowed = sorted(
        method.upper()
        for template, operations in app.openapi()["paths"].items()
        if re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template)), path)
        for method in operations
    )
    if allowed:
        detail = f"{request.method} is not for {shown(path)}; there are {', '.join(allowed)}"
        return Problem("method", detail, headers={"Allow": ", ".join(allowed)})
    return not_found("path", path, list(app.openapi()["paths"]))


def from_validation(request: Request, found: Sequence[Any], body: Any = None) -> Problem:
    """One problem for all that a request has wrong, each with its place."""
    errors = [_error(request, item, body) for item in found[:_SHOWN_ERRORS]]
    first = errors[0]
    place = first["pointer"] or first["in"]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    meant = first.get("did_you_mean")
    hint = f' (did you mean "{meant}"?)' if meant else ""
    return Problem("invalid", f"{place}: {first['message']}{hint}{more}", errors=errors, did_you_mean=meant)


def _error(request: Request, item: dict[str, Any], body: Any) -> dict[str, Any]:
    where, *path = item["loc"]
    path = [part for part in path if part != "[key]"]
    if where == "body":
        path = _in_body(path, body, is_missing=item["type"] == "missing")
    pointer = "".join(f"/{shown(str(part)).replace('~', '~0').replace('/', '~1')}" for part in path)
    message = str(item["msg"]).removeprefix("Value error, ")
    error: dict[str, Any] = {
        "pointer": pointer if where == "body" else shown(str(path[0])) if path else "",
        "in": where,
        "message": message[:1].lower() + message[1:],
        "value": None if item["type"] == "missing" else shown(item.get("input")),
    }
    if item["type"] == "extra_forbidden":
        error["message"] = "unknown member"
        if near := nearest(str(path[-1]), _members(request, path[:-1])):
            error["did_you_mean"] = near
    return error


def _in_body(path: Sequence[Any], body: Any, *, is_missing: bool) -> list[Any]:
    """The path without the words by which pydantic tells the forms of an object apart: no member has these names."""
    found: list[Any] = []
    for place, part in enumerate(path):
        absent = isinstance(body, dict) and part not in body
        if absent and not (is_missing and place == len(path) - 1):
            continue
        found.append(part)
        body = body[part] if isinstance(body, dict) and not absent else None
    return found


def _members(request: Request, path: Sequence[Any]) -> list[str]:
    """The members that the request's model has at a place of the body."""
    route = request.scope.get("route")
    body = getattr(route, "body_field", None)
    model = _model_in(body.field_info.annotation) if body is not None else None
    for part in path:
        field = next((f for name, f in model.model_fields.items() if part in (name, f.alias)), None) if model else None
        model = _model_in(field.annotation) if field is not None else None
    return [field.alias or name for name, field in model.model_fields.items()] if model else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None
