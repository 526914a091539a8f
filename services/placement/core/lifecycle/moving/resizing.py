"""An elastic job's place with more or fewer GPUs: on its server, where it keeps what it has (Gandiva, section 4.1).

It gets there as it would get anywhere else: its next attempt takes over the state of this one, in another number of
processes. Both may hold the same GPUs meanwhile, because only one of them trains.
"""

from __future__ import annotations

from libs.contracts.cluster import TaskPlacement
from libs.contracts.reasons import PendingReason, Reason
from services.placement.core.cell import Cell
from services.placement.core.cluster.features import has
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.reservations import unreserved
from services.placement.core.promises import shortage


def why_not(cell: Cell, job: Job, gpus: int) -> Reason | None:
    """What stands against so many GPUs; None: nothing."""
    if len(job.gang) != 1 or not job.tasks.resizable:
        return Reason(code="NotResizable", message="its processes do not go on in another number, or on other servers")
    if job.held:
        return Reason(code=PendingReason.ON_HOLD, message="its user has paused it")
    if job.suspended:
        return Reason(code="Suspended", message="it waits for its turn")
    if gpus not in job.widths:
        return Reason(code="NotElastic", message=f"it may have {job.widths} GPUs, not {gpus}")
    if gpus > job.width and (waiting := _waiting_job(cell, job)):
        return Reason(code="OthersWait", message=f"{waiting} waits for GPUs")
    return None


def place_with(cell: Cell, job: Job, gpus: int) -> list[TaskPlacement] | None:
    """Where it would be; None when its server has no such room."""
    [task] = job.gang
    own, node = task.gpu_indices, cell.nodes[task.node_id]
    more: list[int] = []
    if gpus > len(own):
        [left] = unreserved(cell, [node])
        more = left.free(node.gpus[own[0]].gpu_type)[: gpus - len(own)]
        if not (node.usable and has(node, job.needs)) or len(own) + len(more) < gpus:
            return None
    gang = [TaskPlacement(node_id=task.node_id, gpu_indices=sorted([*own[:gpus], *more]), first_rank=0)]
    return gang if shortage(cell, [(job, gang)]) is None else None


def _waiting_job(cell: Cell, job: Job) -> str:
    """A job that could use what this one would grow onto: on the queue, or for its turn on the same server."""
    queued = [order for orders in cell.queue.values() for order in orders]
    if queued:
        return min(queued)[2]
    server = job.gang[0].node_id
    suspended = (
        other.job_id
        for other in cell.without_guests()
        if other.suspended
        and other.lasts
        and not (other.held or other.awaits_quota)
        and other.gang[0].node_id == server
    )
    return next(suspended, "")
