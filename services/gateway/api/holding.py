"""The node that has a job, or had it last, where its agent can be asked."""

from __future__ import annotations

from libs.contracts.read_models import NodeRow, NodeState
from services.gateway.adapters import cluster_queries, job_queries
from services.gateway.core.whereabouts import agent_of, holder_of
from services.gateway.door import Gateway
from services.gateway.problems import Problem, invalid, unavailable


async def holding_node(gateway: Gateway, job_id: str, rank: int, *, what: str) -> tuple[NodeRow, int]:
    """The node that ran a rank of the job's latest attempt, and the number of that attempt.

    Args:
        what: what is wanted of it, for messages: `the files of j-… are`.

    Raises:
        Problem: 409 where the job was never placed or the agent cannot be asked, 422 for an unknown rank, 503 while
            the node is away.
    """
    attempts = await gateway.database.read(lambda connection: job_queries.attempts_of(connection, job_id))
    if not attempts:
        raise Problem("conflict", f"{job_id} has not been placed on a node yet: it has no files")
    holder = holder_of(attempts, rank)
    if holder is None:
        raise invalid("rank", f"attempt {attempts[-1].attempt} of {job_id} has no such rank", rank, where="query")
    node = await gateway.database.read(lambda connection: cluster_queries.node(connection, holder.node_id))
    if node is None or not node.present:
        state = NodeState.LOST if node is None else node.state
        raise unavailable(f"{what} on node {holder.node_id}, which is {state}", 30)
    if not gateway.agents.can_ask(agent_of(node)):
        raise Problem(
            "conflict",
            f"{what} on node {node.id}, where the agent cannot be asked: it and the gateway need the same "
            "SANJAYA_CELL_KEY_FILE",
        )
    return node, holder.attempt
