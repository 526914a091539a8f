"""Tenants: what each is guaranteed, may use at most, and has."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import sqlalchemy as sa
from fastapi import APIRouter, Path, Response

from libs.contracts.gateway import TenantConfigured
from libs.contracts.read_models import TenantRow
from services.gateway.adapters import cluster_queries, job_queries
from services.gateway.adapters.database import TooFarBehind
from services.gateway.api.callers import Admin, Reader
from services.gateway.api.cluster import request
from services.gateway.api.common import Door, Fresh, IdempotencyKey, answer, is_accepted, look, responses, scoped
from services.gateway.core import views
from services.gateway.core.shares import refusal, shared_gpus, uses
from services.gateway.door import Gateway
from services.gateway.models.answers import Tenant, TenantList
from services.gateway.models.requests import TenantRequest
from services.gateway.problems import invalid
from services.gateway.strict import StrictRoute

router = APIRouter(prefix="/v1", tags=["cluster"], route_class=StrictRoute)

TenantName = Annotated[str, Path(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$", examples=["vision"])]
PATIENCE_S = 2.0
"""How long the read models are waited for, that a tenant which was just made is known as a parent."""


@router.get("/tenants", operation_id="listTenants", dependencies=[Fresh], responses=responses("TenantList"))
async def list_tenants(gateway: Door, caller: Reader) -> Response:
    """Every tenant, its guarantee, its limits and its use."""

    def query(connection: sa.Connection) -> TenantList:
        rows, gpus = cluster_queries.all_tenants(connection), cluster_queries.all_gpus(connection)
        there = sum(gpu.present for gpu in gpus)
        found = uses(rows, there, job_queries.waiting_gpus(connection))
        items = views.tenants(rows, gpus, job_queries.count_live(connection))
        return TenantList(items=[Tenant(**fields, **found[fields["name"]]._asdict()) for fields in items])

    found, offset = await look(gateway, query)
    return answer(found, offset=offset)


@router.put(
    "/tenants/{tenant}",
    operation_id="configureTenant",
    status_code=202,
    responses=responses("Requested", 400, 413, 415, 507, status=202),
)
async def configure_tenant(
    gateway: Door, caller: Admin, tenant: TenantName, body: TenantRequest, key: IdempotencyKey = None
) -> Response:
    """Set a tenant's place in the tree, its guarantee and limits, and what is done about its jobs that do not get on.

    Running jobs are not stopped when a limit shrinks below their use. What others have borrowed of a guarantee comes
    back when a job within it needs it.
    """
    event = TenantConfigured(
        tenant=tenant,
        gpu_limit=body.gpu_limit,
        weight=body.weight,
        requested_by=caller.name,
        on_stall=body.on_stall or "",
        on_divergence=body.on_divergence or "",
        on_idle=body.on_idle or "",
        parent=body.parent,
        guarantees=body.guarantees,
        limits=body.limits,
        per_user=body.per_user,
        lend=body.lend,
        borrow=body.borrow,
    )
    if not await is_accepted(gateway, scoped(key, caller), event):
        await _must_be_possible(gateway, event)
    return await request(gateway, caller, key, event)


async def _must_be_possible(gateway: Gateway, event: TenantConfigured) -> None:
    """Hold the request against the cluster and the other tenants.

    Raises:
        Problem: 422 with the numbers that do not agree.
    """
    # Where they stay behind, what is known has to do: quota takes any tree, and grants no GPU that the cell has not.
    with suppress(TooFarBehind):
        await gateway.database.wait_for(gateway.intake.next_offset, PATIENCE_S)
    rows, there, guests = await gateway.database.read(_as_it_is)
    found = refusal(event, rows, there, guests=guests)
    if found is not None:
        raise invalid(found.pointer, found.message, found.value)


def _as_it_is(connection: sa.Connection) -> tuple[list[TenantRow], dict[str, int], bool]:
    return (
        cluster_queries.all_tenants(connection),
        shared_gpus(cluster_queries.all_nodes(connection), cluster_queries.all_gpus(connection)),
        cluster_queries.takes_guests(connection),
    )
