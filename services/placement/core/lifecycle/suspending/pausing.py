"""A paused job gives its GPUs up, once its memory is off them: under every policy.

Placement waits for the agents here, other than between turns: what cannot be parked keeps its GPUs, because the next
job would find their memory taken for as long as the user likes, not for a turn. What has not begun to train has nothing
that would be worth that: it is stopped, and queued again.
"""

from __future__ import annotations

from libs.contracts.reasons import PendingReason, Reason
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.plan import Plan
from services.placement.core.lifecycle.suspending.deciding import slice_of, suspended
from services.placement.core.lifecycle.suspending.domains import domain_of


def frees_gpus(job: Job) -> bool:
    """Whether the job is paused, and all of its tasks stand still with their memory off the GPUs that it holds."""
    tasks = job.tasks
    waits = job.held and job.stays and job.move is None
    return waits and all(node_id in tasks.still and node_id not in tasks.on_gpu for node_id in job.live_nodes())


def has_lost_nothing(job: Job) -> bool:
    """Whether the job is paused, and stands still with its memory on the GPUs before its first mini-batch."""
    tasks = job.tasks
    waits = job.held and job.stays and job.move is None and bool(tasks.untrained)
    return waits and all(
        node_id in tasks.still and (node_id in tasks.untrained or node_id not in tasks.on_gpu)
        for node_id in job.live_nodes()
    )


def before_it_began(job: Job) -> Reason:
    """Why a paused job is stopped, and queued again: it would keep its GPUs for as long as the pause lasts."""
    message = "paused before its first mini-batch: it begins anew after `sanjaya resume`, and has lost nothing"
    return Reason(code="PausedBeforeItBegan", message=message, numbers={"gpus": job.width})


def given_up(cell: Cell, job: Job, now_s: float) -> Plan:
    """The decision that others may have the job's GPUs; it goes on on its servers after its user has resumed it."""
    domain = domain_of(cell, job)
    where = ", ".join(task.node_id for task in job.gang)
    message = f"paused: its memory is parked on {where}, and its GPUs are given away; goes on after `sanjaya resume`"
    reason = Reason(code=PendingReason.ON_HOLD, message=message, numbers={"gpus": job.width})
    yield suspended(cell, domain, [job], ends_s=max(slice_of(cell, domain).ends_s, now_s), reason=reason)
