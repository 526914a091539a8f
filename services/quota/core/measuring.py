"""How far granted attempts are: what the estimates of their ends rest on."""

from __future__ import annotations

from libs.contracts.cluster import TaskPlacement
from libs.contracts.introspection import JobProfiled
from libs.contracts.placement import JobMoved, JobPlaced
from libs.kernel.machine import Turn
from services.quota.core.capacity import type_at
from services.quota.core.lending import share_out
from services.quota.core.nouns import Claim, Run
from services.quota.core.shares import back_what_can_be
from services.quota.core.state import State
from services.quota.core.table import machine


@machine.evolves(JobPlaced)
def placed(state: State, event: JobPlaced, now_s: float) -> None:
    claim = state.claims.get(event.job_id)
    if claim is not None:
        # A job that was preempted is placed as another attempt, and keeps what it was granted.
        claim.attempt, claim.run = event.attempt, Run(since_s=now_s)
        claim.placed_s = now_s
        has_gpus(state, claim, event.gang)


@machine.evolves(JobMoved)
def moved(state: State, event: JobMoved, now_s: float) -> None:
    """It takes its work along: how long it has run does not change."""
    claim = state.claims.get(event.job_id)
    if claim is not None:
        has_gpus(state, claim, event.gang)


def has_gpus(state: State, claim: Claim, gang: list[TaskPlacement]) -> None:
    """The attempt is on these GPUs, and counts for their type; a trial in the pool counts for the one granted."""
    state.put(claim, {task.node_id: list(task.gpu_indices) for task in gang})
    first = gang[0]
    if (node := state.nodes.get(first.node_id)) is not None and node.in_pool:
        return
    gpu_type = type_at(state, first.node_id, first.gpu_indices[0])
    if gpu_type != claim.gpu_type:
        state.count_for(claim, gpu_type)
        back_what_can_be(state)


@machine.decides(JobPlaced)
def look_again(state: State, event: JobPlaced, turn: Turn[State]) -> None:
    """More GPUs are in use: that may have been what a job within a guarantee waited for."""
    if state.has_guarantees and any(tenant.waiting for tenant in state.tenants.values()):
        share_out(state, turn)


@machine.evolves(JobProfiled)
def profiled(state: State, event: JobProfiled, now_s: float) -> None:
    claim = state.claims.get(event.job_id)
    if claim is not None and claim.run is not None:
        claim.run.done_minibatches, claim.run.rate_per_s = event.minibatches_total, event.rate_per_s
