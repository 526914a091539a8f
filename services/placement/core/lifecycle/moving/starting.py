"""A job is to move, or to have more or fewer GPUs: where to, and can it get there live?"""

from __future__ import annotations

from libs.contracts.cluster import TaskPlacement
from libs.contracts.migration import MigrationStarted
from libs.contracts.placement import MoveAbandoned
from libs.contracts.reasons import Reason
from libs.kernel.machine import Turn
from libs.kernel.words import counted
from libs.policies.table import POLICIES
from services.placement.core.cell import Cell
from services.placement.core.cluster import gangs
from services.placement.core.cluster.features import has
from services.placement.core.cluster.servers import Listed
from services.placement.core.jobs import Job
from services.placement.core.lifecycle import ports
from services.placement.core.lifecycle.abandoning import abandon
from services.placement.core.lifecycle.current import active
from services.placement.core.lifecycle.moving.reserving import reserve, reserved
from services.placement.core.lifecycle.moving.resizing import place_with, why_not
from services.placement.core.lifecycle.placing import preempt, preempted
from services.placement.core.lifecycle.reservations import unreserved
from services.placement.core.lifecycle.table import Look, machine, reacts
from services.placement.core.promises import elsewhere


@reacts(MigrationStarted)
def move_or_preempt(cell: Cell, event: MigrationStarted, turn: Turn[Cell]) -> Look | None:
    """What is reserved for the job is free no more, and those that wait may wait for something else now."""
    job = active(cell, event.job_id, event.attempt)
    if job is None or not job.lasts or job.cancellation is not None:
        return None
    freed = abandon(cell, job, event.reason, turn, goes_on=True) if event.must_leave else None
    obstacle = _obstacle(cell, job, event)
    gang = None if obstacle else _destination(cell, job, event)
    if gang is not None and (obstacle := ports.none_left(cell, gang)) is not None:
        gang = None
    if gang is not None:
        reserve(cell, reserved(job, event.migration_id, gang, event.reason.code), turn)
        return Look() if cell.queue else freed
    if event.must_leave:
        preempt(cell, preempted(job, event.reason), turn)
    else:
        reason = obstacle or Reason(code="NoRoom", message="there are no free GPUs for it where it was to go")
        turn.emit(
            MoveAbandoned(migration_id=event.migration_id, job_id=job.job_id, from_attempt=job.attempt, reason=reason)
        )
    return freed


def _obstacle(cell: Cell, job: Job, event: MigrationStarted) -> Reason | None:
    """Why the job cannot be moved live, wherever to."""
    if job.guest:
        return Reason(code="Guest", message="a guest is not moved: it has no GPUs of its own")
    if job.move is not None:
        return Reason(code="BeingResized", message=f"it is about to have {counted(job.move.width, 'GPU')}")
    if job.awaits_quota:
        return Reason(code="AwaitsQuota", message="what it had was reclaimed, and it has no quota for GPUs elsewhere")
    if not POLICIES[cell.policy].moves_live:
        return Reason(code="RoundsMoveJobs", message=f"under {cell.policy} jobs change places between rounds")
    companion = cell.book.packed(job.job_id)
    if companion is not None:
        return Reason(code="Packed", message=f"it shares its GPUs with {companion}")
    if job.tasks.exits:
        return Reason(code="Ending", message="one of its tasks has ended, and has no state to hand over")
    if any(task.node_id not in job.tasks.movable for task in job.gang):
        return Reason(code="NotMovable", message="its processes do not hand over their state")
    return why_not(cell, job, event.gpus) if event.gpus is not None else None


def _destination(cell: Cell, job: Job, event: MigrationStarted) -> list[TaskPlacement] | None:
    if event.gpus is not None:
        return place_with(cell, job, event.gpus)
    nodes = [
        node
        for node in cell.nodes.values()
        if node.usable and (node.node_id in event.to_nodes if event.to_nodes else node.node_id not in event.from_nodes)
    ]
    able = [node for node in nodes if has(node, job.needs)]
    fit = gangs.best_fit(job.request, elsewhere(cell, job, Listed(unreserved(cell, able))))
    return fit.gang if fit is not None else None


@machine.evolves(MigrationStarted)
def must_leave(cell: Cell, event: MigrationStarted, now_s: float) -> None:
    """Noted for the case that the live move fails."""
    job = active(cell, event.job_id, event.attempt)
    if job is not None:
        job.must_leave = event.reason if event.must_leave else None
