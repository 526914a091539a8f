"""Nodes, GPUs, policy and settings."""

from __future__ import annotations

from typing import Annotated

import sqlalchemy as sa
from fastapi import APIRouter, Path, Response

from libs.contracts import settings as known_settings
from libs.contracts.base import Event
from libs.contracts.catalogue import SERVICES
from libs.contracts.gateway import (
    ColocatedRate,
    IsolatedRate,
    NodeDrainRequested,
    NodeUndrainRequested,
    PolicyChanged,
    SettingChanged,
    ThroughputsProvided,
)
from libs.contracts.read_models import GpuRow, JobRow, NodeRow
from libs.contracts.runtime import ClockRepaired
from libs.kernel.clock import AHEAD_FROM_S
from services.gateway.adapters import cluster_queries, job_queries
from services.gateway.adapters.tokens import Principal
from services.gateway.api.callers import Admin, Operator, Reader
from services.gateway.api.common import (
    REFERENCE,
    Door,
    Fresh,
    IdempotencyKey,
    answer,
    append,
    look,
    responses,
    said_of,
    scoped,
)
from services.gateway.core import views
from services.gateway.door import Gateway
from services.gateway.models.answers import (
    Gpu,
    GpuList,
    LogClock,
    Node,
    NodeList,
    Policy,
    Requested,
    Setting,
    SettingList,
)
from services.gateway.models.requests import (
    ClockRepairRequest,
    DrainRequest,
    PolicyRequest,
    SettingRequest,
    ThroughputsRequest,
)
from services.gateway.problems import Problem, not_found
from services.gateway.strict import StrictRoute

router = APIRouter(prefix="/v1", tags=["cluster"], route_class=StrictRoute)

NodeId = Annotated[str, Path(pattern=REFERENCE, examples=["n1"])]
SettingPart = Annotated[str, Path(pattern=r"^[a-z][a-z0-9_]{0,62}$")]


@router.get("/nodes", operation_id="listNodes", dependencies=[Fresh], responses=responses("NodeList"))
async def list_nodes(gateway: Door, caller: Reader) -> Response:
    """Every node that ever joined, with what it has free."""
    (nodes, gpus, asking), offset = await look(gateway, _nodes_and_gpus)
    return answer(NodeList(items=[Node(**fields) for fields in views.nodes(nodes, gpus, asking)]), offset=offset)


@router.get("/gpus", operation_id="listGpus", dependencies=[Fresh], responses=responses("GpuList"))
async def list_gpus(gateway: Door, caller: Reader) -> Response:
    """Every GPU and the jobs that hold it."""
    (nodes, gpus, asking), offset = await look(gateway, _nodes_and_gpus)
    by_id, jobs = {node.id: node for node in nodes}, {job.id: job for job in asking}
    items = [Gpu(**views.gpu(gpu, by_id.get(gpu.node_id), jobs)) for gpu in gpus]
    return answer(GpuList(items=items), offset=offset)


def _nodes_and_gpus(connection: sa.Connection) -> tuple[list[NodeRow], list[GpuRow], list[JobRow]]:
    """The third: jobs that ask for CPUs or memory."""
    nodes, gpus = cluster_queries.all_nodes(connection), cluster_queries.all_gpus(connection)
    return nodes, gpus, job_queries.asking(connection)


@router.post(
    "/nodes/{node}/drain",
    operation_id="drainNode",
    status_code=202,
    responses=responses("Requested", 400, 404, 413, 415, 507, status=202),
)
async def drain(
    gateway: Door, caller: Operator, node: NodeId, body: DrainRequest, key: IdempotencyKey = None
) -> Response:
    """Give a node no new work and move away what runs there. The reason is required.

    A job that can neither be moved with its state nor start again from a checkpoint runs on to its end, unless `now`.
    """
    await _require_node(gateway, node)
    event = NodeDrainRequested(node_id=node, note=body.reason, requested_by=caller.name, now=body.now)
    return await request(gateway, caller, key, event)


@router.post(
    "/nodes/{node}/undrain",
    operation_id="undrainNode",
    status_code=202,
    responses=responses("Requested", 404, 507, status=202),
)
async def undrain(gateway: Door, caller: Operator, node: NodeId, key: IdempotencyKey = None) -> Response:
    """Let a node be used again."""
    await _require_node(gateway, node)
    return await request(gateway, caller, key, NodeUndrainRequested(node_id=node, requested_by=caller.name))


async def _require_node(gateway: Gateway, node_id: str) -> None:
    nodes = await gateway.database.read(cluster_queries.all_nodes)
    known = [node.id for node in nodes]
    if node_id not in known:
        raise not_found("node", node_id, known)


async def request(gateway: Gateway, caller: Principal, key: str | None, event: Event) -> Response:
    """Append what was asked for, and answer where it stands."""
    taken = await append(gateway, scoped(key, caller), event)
    body = Requested(id=event.subject, event=event.wire_type, offset=taken.offset)
    return answer(body, 202, offset=taken.offset, headers=said_of(taken))


@router.get("/policy", operation_id="getPolicy", dependencies=[Fresh], responses=responses("Policy"))
async def get_policy(gateway: Door, caller: Reader) -> Response:
    """The placement policy, by which user it was set and why."""
    rows, offset = await look(gateway, cluster_queries.all_settings)
    return answer(Policy(**views.policy(rows)), offset=offset)


@router.put(
    "/policy",
    operation_id="setPolicy",
    status_code=202,
    responses=responses("Requested", 400, 413, 415, 507, status=202),
)
async def set_policy(gateway: Door, caller: Admin, body: PolicyRequest, key: IdempotencyKey = None) -> Response:
    """Switch the placement policy; it takes effect at the next decision."""
    event = PolicyChanged(requested_by=caller.name, **body.model_dump())
    return await request(gateway, caller, key, event)


@router.put(
    "/throughputs",
    operation_id="provideThroughputs",
    status_code=202,
    responses=responses("Requested", 400, 413, 415, 507, status=202),
)
async def provide_throughputs(
    gateway: Door, caller: Admin, body: ThroughputsRequest, key: IdempotencyKey = None
) -> Response:
    """Tell how fast configurations train, alone and in pairs; policies use it for jobs that name their model."""
    event = ThroughputsProvided(
        provided_by=caller.name,
        isolated=[IsolatedRate(**row.model_dump()) for row in body.isolated],
        colocated=[ColocatedRate(**row.model_dump()) for row in body.colocated],
    )
    return await request(gateway, caller, key, event)


@router.get("/clock", operation_id="getClock", dependencies=[Fresh], responses=responses("LogClock"))
async def get_clock(gateway: Door, caller: Reader) -> Response:
    """By how much the services are ahead of the log's clock."""
    ahead_s, offset = await look(gateway, _ahead_s)
    return answer(LogClock(ahead_s=ahead_s), offset=offset)


def _ahead_s(connection: sa.Connection) -> float:
    return cluster_queries.clock_ahead_s(connection, SERVICES)


@router.post(
    "/clock/repair",
    operation_id="repairClock",
    status_code=202,
    responses=responses("Requested", 400, 409, 413, 415, 507, status=202),
)
async def repair_clock(
    gateway: Door, caller: Operator, body: ClockRepairRequest, key: IdempotencyKey = None
) -> Response:
    """Have the services go back to the log's clock, and all times that they wait for with them.

    409 where their decisions are dated by it: there is nothing to repair.
    """
    ahead_s, _ = await look(gateway, _ahead_s)
    if ahead_s < AHEAD_FROM_S:
        detail = (
            f"the services go by the log's clock (ahead of it by {ahead_s:.3f} s, expected {AHEAD_FROM_S:g} or more)"
        )
        raise Problem("conflict", detail)
    event = ClockRepaired(log=gateway.bus.cell, requested_by=caller.name, note=body.reason)
    return await request(gateway, caller, key, event)


@router.get("/settings", operation_id="listSettings", dependencies=[Fresh], responses=responses("SettingList"))
async def list_settings(gateway: Door, caller: Reader) -> Response:
    """The numbers that the services decide by."""
    rows, offset = await look(gateway, cluster_queries.all_settings)
    return answer(SettingList(items=[Setting(**fields) for fields in views.settings(rows)]), offset=offset)


@router.put(
    "/settings/{service}/{name}",
    operation_id="changeSetting",
    status_code=202,
    responses=responses("Requested", 400, 404, 413, 415, 507, status=202),
)
async def change_setting(
    gateway: Door,
    caller: Admin,
    service: SettingPart,
    name: SettingPart,
    body: SettingRequest,
    key: IdempotencyKey = None,
) -> Response:
    """Change a number that a service decides by; on the log, so that a replay has it too."""
    known = [f"{setting.service}/{setting.name}" for setting in known_settings.SETTINGS]
    if f"{service}/{name}" not in known:
        raise not_found("setting", f"{service}/{name}", known)
    event = SettingChanged(service=service, name=name, value=body.value, requested_by=caller.name)
    return await request(gateway, caller, key, event)
