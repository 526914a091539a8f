"""Jobs that have failed on a node go to others, while others can take them; and what else a retry changes of a job.

And what follows for waiting jobs when nodes come and go: whether they still avoid some, and their side of the pools.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from libs.contracts.failure_analysis import RetryScheduled
from libs.contracts.features import name_of
from libs.contracts.reasons import Reason
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job, Phase
from services.placement.core.lifecycle.pools import side_for, takes_empty
from services.placement.core.lifecycle.queue import dequeue, enqueue


def change(cell: Cell, job: Job, event: RetryScheduled) -> None:
    """The job's next attempt is as the retry says. The job is not queued yet."""
    memory_bytes = event.memory_bytes if event.memory_bytes is not None else job.spec.memory_bytes
    if event.env or memory_bytes != job.spec.memory_bytes:
        job.spec = replace(job.spec, env={**job.spec.env, **event.env}, memory_bytes=memory_bytes)
    avoid(cell, job, event.avoided_nodes)


def avoid(cell: Cell, job: Job, node_ids: Sequence[str]) -> None:
    """The job is not placed on these nodes from now on, and no others are avoided by it. It is not queued."""
    for node_id in dict.fromkeys([*job.avoided, *node_ids]):
        node = cell.nodes.get(node_id)
        if node is None or (node_id in node_ids) == (job.job_id in node.avoided_by):
            continue
        if node_id in node_ids:
            node.avoided_by = [*node.avoided_by, job.job_id]
        else:
            node.avoided_by = [each for each in node.avoided_by if each != job.job_id]
        cell.changed(node_id)
    job.avoided = [node_id for node_id in node_ids if node_id in cell.nodes]


def lift_if_needed(cell: Cell, job: Job) -> None:
    """Where no others could take the job, were they empty, and those that it avoids could, it avoids none any more."""
    if not job.avoided or takes_empty(cell, job):
        return
    before = job.avoided
    avoid(cell, job, [])
    if not takes_empty(cell, job):
        avoid(cell, job, before)


def reconsider(cell: Cell) -> None:
    """A node has come or gone, or a GPU: jobs that wait for others may have to take what they avoid, and trials go to
    their pool as long as it could take them."""
    for job in cell.jobs.values():
        side = side_for(cell, job)
        if job.phase is not Phase.QUEUED:
            if job.trial is None:  # a trial that runs goes on where it is
                job.pool = side
            continue
        if side == job.pool and (not job.avoided or takes_empty(cell, job)):
            continue
        if not job.held:
            dequeue(cell, job)
        job.pool = side
        lift_if_needed(cell, job)
        if not job.held:
            enqueue(cell, job)


def told_with(job: Job, reason: Reason) -> Reason:
    """The reason of a placement, with the pool that it is in, and what was avoided by it."""
    if pool := name_of(job.pool):
        reason = replace(reason, message=f"{reason.message}; in the pool {pool!r}, where trials go first")
    if not job.avoided:
        return reason
    avoided = ", ".join(job.avoided)
    message = f"{reason.message}; not on {avoided}, where it has failed"
    return replace(reason, message=message, numbers={**reason.numbers, "avoided_nodes": avoided})
