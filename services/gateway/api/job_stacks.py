"""What the processes of a running job do just now."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Response

from libs.contracts.read_models import FINAL_STATES, NodeRow
from libs.runtime.agents import AgentAway
from services.gateway.adapters import cluster_queries, job_queries
from services.gateway.api.callers import Reader
from services.gateway.api.common import Door, JobReference, answer, responses
from services.gateway.api.finding import own_job
from services.gateway.core.whereabouts import agent_of, holder_of
from services.gateway.door import Gateway
from services.gateway.models.answers import ProcessStacks, Stacks
from services.gateway.problems import Problem, invalid
from services.gateway.strict import StrictRoute

router = APIRouter(prefix="/v1/jobs/{job}/stacks", tags=["jobs"], route_class=StrictRoute)


@router.get("", operation_id="readJobStacks", responses=responses("Stacks", 404, 409))
async def read_stacks(
    gateway: Door,
    caller: Reader,
    job: JobReference,
    rank: Annotated[int | None, Query(ge=0, le=2**31, description="Of this rank alone; without it: of all.")] = None,
) -> Response:
    """The stacks of a running job's processes, from its nodes: what each thread does, the innermost call first.

    The processes go on undisturbed. A node that does not answer is named in `missing`.
    """
    row = await own_job(gateway, caller, job)
    attempts = await gateway.database.read(lambda connection: job_queries.attempts_of(connection, row.id))
    if row.state in FINAL_STATES or not attempts or attempts[-1].ended_s is not None:
        raise Problem("conflict", f"{row.id} is {row.state}: none of its processes runs")
    node_ids = [task["node_id"] for task in attempts[-1].placement]
    if rank is not None:
        holder = holder_of(attempts, rank)
        if holder is None:
            raise invalid("rank", f"attempt {row.attempt} of {row.id} has no such rank", rank, where="query")
        node_ids = [holder.node_id]
    found = await asyncio.gather(*(_on(gateway, node_id, row.id, row.attempt) for node_id in node_ids))
    items = [item for items, _ in found for item in items if rank is None or item.rank in (rank, None)]
    missing = [why for _, why in found if why]
    return answer(Stacks(job_id=row.id, attempt=row.attempt, items=items, missing=missing))


async def _on(gateway: Gateway, node_id: str, job_id: str, attempt: int) -> tuple[Sequence[ProcessStacks], str]:
    """The stacks on one node, or why there are none."""
    node: NodeRow | None = await gateway.database.read(lambda connection: cluster_queries.node(connection, node_id))
    if node is None or not node.present:
        return [], f"node {node_id} is away"
    agent = agent_of(node)
    if not gateway.agents.can_ask(agent):
        return [], f"node {node_id} serves no stacks: its agent and the gateway need the same SANJAYA_CELL_KEY_FILE"
    try:
        items = await gateway.agents.stacks(agent, job_id, attempt)
    except AgentAway as error:
        return [], str(error)
    return [ProcessStacks(node_id=node_id, **item) for item in items], ""
