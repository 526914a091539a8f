"""The ways to make a job give GPUs up for others: which are open to it, and the decision by which it goes each.

A policy's row names its ways in the order in which they are tried (`libs/policies/policy.py`); a mechanism says which
jobs are to give way and when. What becomes of lost nodes, drains and pauses is no policy's, and not decided here.

    way       open to                                       the decision
    SHRINK    an elastic job that can go on with fewer       DestinationReserved (`shrunk`)
    RESTART   a job that its user calls restartable          JobPreempted (`placing.preempted`)
    SUSPEND   a job that can go on on its servers            TimeSliceStarted (`changes.suspended`, one for a server)
    PREEMPT   any                                            JobPreempted (`placing.preempted`)
"""

from __future__ import annotations

from collections.abc import Callable

from libs.contracts.placement import DestinationReserved
from libs.kernel.words import counted
from libs.policies.policy import Way
from libs.policies.table import POLICIES
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.moving.reserving import reserved
from services.placement.core.lifecycle.moving.resizing import place_with, why_not
from services.placement.core.lifecycle.suspending.returning import is_pinned


def way_of(cell: Cell, job: Job, but: Way | None = None) -> Way | None:
    """The first way of the policy in force that is open to the job; None: it keeps its GPUs.

    Args:
        but: a way that does not do, because the job is to go on elsewhere.
    """
    return next((way for way in POLICIES[cell.policy].ways if way is not but and _OPEN[way](cell, job)), None)


def is_open(cell: Cell, job: Job, way: Way) -> bool:
    """Whether the job may be made to give way like this, whatever other ways there are."""
    return way in POLICIES[cell.policy].ways and _OPEN[way](cell, job)


def shrunk(cell: Cell, job: Job, gpus: int, migration_id: str, code: str) -> DestinationReserved:
    """The decision that the job goes on with so many of its GPUs; `code` says why.

    Raises:
        ValueError: it may have so few, and has not as many.
    """
    gang = place_with(cell, job, gpus)
    if gang is None:
        raise ValueError(f"job {job.job_id} has {counted(job.width, 'GPU')} and cannot shrink to {gpus}")
    return reserved(job, migration_id, gang, code)


def _shrinks(cell: Cell, job: Job) -> bool:
    return cell.book.packed(job.job_id) is None and why_not(cell, job, job.spec.widths[0]) is None


def _restarts(cell: Cell, job: Job) -> bool:
    return job.spec.restartable


def _is_preempted(cell: Cell, job: Job) -> bool:
    return True


_OPEN: dict[Way, Callable[[Cell, Job], bool]] = {
    Way.SHRINK: _shrinks,
    Way.RESTART: _restarts,
    Way.SUSPEND: is_pinned,
    Way.PREEMPT: _is_preempted,
}
