"""The pool for trials: nodes that are set apart, where trials are placed first, and no other job.

Which side of the pool a job is on is a feature that it needs of its nodes, so mechanisms, reservations, moves and
guests need not know.
"""

from __future__ import annotations

from libs.contracts import features
from services.placement.core.cell import Cell
from services.placement.core.cluster import gangs
from services.placement.core.cluster.features import lacking
from services.placement.core.jobs import Job
from services.placement.core.promises import when_empty

_TRIALS = features.pool(features.TRIALS)


def side_for(cell: Cell, job: Job) -> str:
    """Where the job is to be placed: as `Job.pool` says it.

    A trial that the nodes of the pool could not take, were they empty, is placed anywhere: none of them is there, or
    none has what it needs.
    """
    if not cell.set_apart:
        return ""
    if job.trial is None:
        return features.OUTSIDE_POOLS
    of_pool = cell.servers(lacking(cell.nodes.values(), job.needs_in(_TRIALS)))
    return _TRIALS if gangs.can_hold(job.spec.gpus, when_empty(job, of_pool)) else ""


def settle(cell: Cell, job: Job) -> None:
    """The job is placed where it is to be from now on. It is not queued."""
    job.pool = side_for(cell, job)


def takes_empty(cell: Cell, job: Job) -> bool:
    """Whether the nodes with what the job needs could take it, were they empty."""
    return gangs.can_hold(job.spec.gpus, when_empty(job, cell.servers_for(job)))


def words(job: Job) -> str:
    """Behind the GPUs that it needs; empty where no pool matters to it."""
    if job.pool == features.OUTSIDE_POOLS:
        return " outside the pool for trials"
    return f" of the pool {features.name_of(job.pool)!r}" if job.pool else ""
