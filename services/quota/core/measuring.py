"""How far granted attempts are: what the estimates of their ends rest on."""

from __future__ import annotations

from libs.contracts.introspection import JobProfiled
from libs.contracts.placement import JobPlaced
from services.quota.core.state import Run, State
from services.quota.core.table import machine


@machine.evolves(JobPlaced)
def placed(state: State, event: JobPlaced, now_s: float) -> None:
    claim = state.claims.get(event.job_id)
    if claim is not None:
        # A job that was preempted is placed as another attempt, and keeps what it was granted.
        claim.attempt, claim.run = event.attempt, Run(since_s=now_s)


@machine.evolves(JobProfiled)
def profiled(state: State, event: JobProfiled, now_s: float) -> None:
    claim = state.claims.get(event.job_id)
    if claim is not None and claim.run is not None:
        claim.run.done_minibatches, claim.run.rate_per_s = event.minibatches_total, event.rate_per_s
