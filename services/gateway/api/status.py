"""How the cell is, and how the gateway is."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import sqlalchemy as sa
import yaml
from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from libs.contracts.gateway import OWNER
from services.gateway.adapters import cluster_queries, job_queries
from services.gateway.adapters.database import ReadModelsAway
from services.gateway.adapters.light import Light
from services.gateway.api.callers import Reader
from services.gateway.api.common import Door, Fresh, answer, look, problems, responses
from services.gateway.core import views
from services.gateway.models.answers import Conservation, Disk, Health, Law, Status
from services.gateway.problems import KINDS, not_found
from services.gateway.strict import StrictRoute

router = APIRouter(route_class=StrictRoute)


def _version() -> str:
    try:
        return version("sanjaya")
    except PackageNotFoundError:
        return "0"


VERSION = _version()


@router.get(
    "/v1/status", operation_id="getStatus", tags=["status"], dependencies=[Fresh], responses=responses("Status")
)
async def status(gateway: Door, caller: Reader) -> Response:
    """Positions and lag, jobs and GPUs by state, and the light of conservation."""

    def query(connection: sa.Connection) -> dict[str, Any]:
        nodes, gpus = cluster_queries.all_nodes(connection), cluster_queries.all_gpus(connection)
        by_id = {node.id: node for node in nodes}
        return {
            "jobs": job_queries.count_by_state(connection),
            "nodes": _count(node.state.value for node in nodes),
            "gpus": _count(views.gpu_state(gpu, by_id.get(gpu.node_id)) for gpu in gpus if gpu.present),
            "oldest_waiting": job_queries.oldest_waiting(connection),
            "newest_by_source": cluster_queries.newest_by_source(connection),
            "accepted": cluster_queries.count_of(connection, OWNER),
        }

    found, offset = await look(gateway, query)
    light = await gateway.lamp.recent()
    next_offset = max(gateway.feed.next_offset, offset + 1)
    body = Status(
        cell=gateway.bus.cell,
        version=VERSION,
        next_offset=next_offset,
        read_models_offset=offset,
        lag=next_offset - offset - 1,
        ready=gateway.intake.ready,
        conservation=_conservation(light),
        disks=[
            Disk(keeps=keeps, path=room.path, free_bytes=room.free_bytes, short=gateway.disks.is_short(keeps))
            for keeps, room in gateway.disks.rooms.items()
        ],
        shortage=gateway.disks.shortage,
        **found,
    )
    return answer(body, offset=offset)


def _count(values: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return dict(sorted(counts.items()))


def _conservation(light: Light) -> Conservation:
    laws = [Law(**vars(law)) for law in light.laws]
    return Conservation(light=light.color, offset=light.offset, checked_s=light.checked_s, laws=laws)


@router.get("/healthz", operation_id="getHealth", tags=["status"], responses=responses("Health"))
async def healthz(gateway: Door) -> Response:
    """The process works. Nothing else is asked: a restart would not help what it waits for."""
    return answer(Health(ok=True, checks={"process": "ok"}))


@router.get(
    "/readyz",
    operation_id="getReadiness",
    tags=["status"],
    responses=responses("Health") | {503: {"description": "Health"}},
)
async def readyz(gateway: Door) -> Response:
    """Whether jobs are accepted, for which the disks need room, and read models are there; 503 when not."""
    checks = {"log": "ok" if gateway.intake.ready else "the log is being read, or cannot be reached"}
    checks["disks"] = gateway.disks.shortage or "ok"
    try:
        await gateway.database.position()
        checks["read models"] = "ok"
    except ReadModelsAway as error:
        checks["read models"] = str(error)
    ok = all(value == "ok" for value in checks.values())
    return answer(Health(ok=ok, checks=checks), 200 if ok else 503)


@router.get("/metrics", operation_id="getMetrics", tags=["status"], include_in_schema=False)
async def metrics(gateway: Door) -> Response:
    """For Prometheus."""
    for keeps, room in gateway.disks.rooms.items():
        gateway.metrics.disk_free_bytes.labels(keeps).set(room.free_bytes)
    gateway.metrics.conserved.set(gateway.lamp.light.color != "red")
    try:
        gateway.metrics.lag_records.set(max(gateway.feed.next_offset - await gateway.database.position(), 0))
    except ReadModelsAway:
        gateway.metrics.lag_records.set(gateway.feed.next_offset)
    return Response(generate_latest(gateway.metrics.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/asyncapi.json", include_in_schema=False)
async def asyncapi(gateway: Door, request: Request) -> Response:
    """The topics and their messages."""
    path = gateway.settings.asyncapi_file
    if not path.is_file():
        raise not_found("document", "asyncapi.json", hint=f"; it is made from the events into {path.name}")
    return Response(json.dumps(yaml.safe_load(path.read_text())), media_type="application/json")


@router.get("/problems/{slug}", include_in_schema=False, responses=problems(404))
async def problem(slug: str) -> Response:
    """What a kind of problem means; the `type` of a problem document leads here."""
    kind = KINDS.get(slug)
    if kind is None:
        raise not_found("kind of problem", slug, list(KINDS))
    return Response(f"{kind.title} ({kind.status})\n\n{kind.meaning}\n", media_type="text/plain")
