"""What an operator lets a job have of each of its GPUs: a bound for what the coordination of its nodes gives it."""

from __future__ import annotations

from collections.abc import Iterator

from libs.contracts.gateway import LimitsRequested
from libs.contracts.placement import SetComputeShare, SetMemoryLimit
from libs.kernel.machine import Turn
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job, Phase
from services.placement.core.lifecycle.table import machine, reacts


@machine.evolves(LimitsRequested)
def limits_requested(cell: Cell, event: LimitsRequested, now_s: float) -> None:
    job = cell.jobs.get(event.job_id)
    if job is not None:
        job.memory_limit_bytes, job.compute_share_ratio = event.memory_limit_bytes, event.compute_share_ratio


@reacts(LimitsRequested)
def bound(cell: Cell, event: LimitsRequested, turn: Turn[Cell]) -> None:
    """Tell the tasks that there are; launch orders have it for those of later attempts."""
    job = cell.jobs.get(event.job_id)
    if job is not None and job.phase is Phase.ACTIVE and not job.stopping:
        for order in _bound_orders(job):
            turn.emit(order)


def _bound_orders(job: Job) -> Iterator[SetMemoryLimit | SetComputeShare]:
    for node_id in job.live_nodes():
        yield SetMemoryLimit(
            node_id=node_id, job_id=job.job_id, attempt=job.attempt, limit_bytes=job.memory_limit_bytes
        )
        yield SetComputeShare(
            node_id=node_id, job_id=job.job_id, attempt=job.attempt, share_ratio=job.compute_share_ratio
        )
