"""The HTTP application over a gateway."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from libs.bus.http.protocol import QUESTIONS_AND_ANSWERS
from services.gateway.api import (
    agents_bus,
    browsers,
    cluster,
    code,
    dead_letters,
    errors,
    events,
    failures,
    groups,
    job_changes,
    job_files,
    job_logs,
    job_sessions,
    job_stacks,
    job_views,
    jobs,
    log_export,
    page,
    status,
    sweeps,
    tenants,
    usage,
)
from services.gateway.api.guard import Guard
from services.gateway.door import Gateway
from services.gateway.models.answers import ANSWERS
from services.gateway.models.sweep_answers import SWEEP_ANSWERS

DESCRIPTION = """Submit jobs to a cell of Sanjaya, see where they are and why, follow what happens.

Every change is an event on the cell's log; an answer's `Sanjaya-Offset` says where. Reads come from read models
that follow the log: `at_least_offset` (or `Prefer: wait=5`) makes them include your own writes. Errors are
problem documents (RFC 9457) that name the field."""

_PROBLEM: dict[str, Any] = {
    "title": "Problem",
    "type": "object",
    "description": "An RFC 9457 problem document.",
    "required": ["type", "title", "status", "detail", "instance"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "did_you_mean": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["pointer", "in", "message"],
                "properties": {
                    "pointer": {"type": "string", "description": "JSON pointer into the body, or a parameter's name."},
                    "in": {"type": "string", "enum": ["body", "query", "path", "header", "cookie"]},
                    "message": {"type": "string"},
                    "value": {},
                    "did_you_mean": {"type": "string"},
                },
            },
        },
    },
}


def create_app(gateway: Gateway) -> FastAPI:
    """The application; the gateway's own life (`Gateway.running`) is its caller's business."""
    app = _routed()
    app.state.gateway = gateway
    errors.install(app)
    app.add_middleware(Guard, gateway=gateway)
    return app


def openapi_document() -> dict[str, Any]:
    """The OpenAPI document, without a gateway behind it."""
    return _document(_routed())


_ROOMS = (
    jobs,
    job_changes,
    job_views,
    job_files,
    job_stacks,
    job_logs,
    job_sessions,
    groups,
    sweeps,
    cluster,
    tenants,
    events,
    log_export,
    code,
    agents_bus,
    status,
    usage,
    failures,
    dead_letters,
    browsers,
    page,
)
_ROUTES = [route for room in _ROOMS for route in room.router.routes]
"""In this order: the first one that matches answers."""


def _routed() -> FastAPI:
    # As they are, and not by include_router, which would work out the dependencies of each route a second time.
    app = FastAPI(
        routes=_ROUTES,
        title="Sanjaya",
        version=status.VERSION,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    return app


def _document(app: FastAPI) -> dict[str, Any]:
    """OpenAPI 3.1, with the schemas of our own answers and problems."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        _, answers = msgspec.json.schema_components(
            (*ANSWERS, *SWEEP_ANSWERS, *QUESTIONS_AND_ANSWERS), ref_template="#/components/schemas/{name}"
        )
        schemas |= answers | {"Problem": _PROBLEM}
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        app.openapi_schema = document
    return app.openapi_schema
