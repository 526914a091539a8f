"""Which attempt of a job counts: what is said about any other is over."""

from __future__ import annotations

from services.placement.core.cell import Cell
from services.placement.core.jobs import ACTIVE, Job


def active(cell: Cell, job_id: str, attempt: int) -> Job | None:
    """The job, if this very attempt holds GPUs; None for everything that is over."""
    job = cell.jobs.get(job_id)
    return job if job is not None and job.phase is ACTIVE and job.attempt == attempt else None


def expects(cell: Cell, node_id: str, job_id: str, attempt: int) -> bool:
    """Whether a task of this attempt should be on the node: it holds GPUs there, or is about to take over."""
    job = cell.jobs.get(job_id)
    if job is not None and job.move is not None and job.move.attempt == attempt:
        return any(task.node_id == node_id and node_id not in job.move.gone for task in job.move.gang)
    job = active(cell, job_id, attempt)
    return job is not None and node_id in job.live_nodes()
