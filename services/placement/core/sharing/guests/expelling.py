"""A guest that slows an owner down leaves it."""

from __future__ import annotations

from libs.contracts.introspection import InterferenceDetected
from libs.contracts.placement import GuestExpelled, JobPreempted
from libs.contracts.reasons import Number, Reason
from libs.kernel.machine import Turn
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.current import active
from services.placement.core.lifecycle.plan import Plan, carry_out
from services.placement.core.lifecycle.suspending.yielding import given_way
from services.placement.core.lifecycle.table import Look, machine, reacts

PROFILES = 3
"""So often in a row an owner must have been slower beside guests."""

machine.hears(InterferenceDetected)


@reacts(InterferenceDetected)
def expel(cell: Cell, event: InterferenceDetected, turn: Turn[Cell]) -> Look | None:
    """The guest that came last goes first: the next ones follow if that has not helped."""
    owner = active(cell, event.job_id, event.attempt)
    if owner is None or owner.guest or event.in_a_row < PROFILES:
        return None
    beside = [job for job in (cell.jobs.get(job_id) for job_id in event.beside) if job is not None and job.guest]
    last = max((job for job in beside if job.stays), key=lambda job: (job.since_s, job.seq), default=None)
    if last is None:
        return None
    carry_out(cell, _expelled(cell, last, owner, event, turn.now_s), turn)
    return Look(guests_alone=True)


def _expelled(cell: Cell, guest: Job, owner: Job, event: InterferenceDetected, now_s: float) -> Plan:
    """It is suspended; one that keeps its work is queued again, because it may go to any server then."""
    slowdown = event.minibatch_s / event.alone_s - 1.0 if event.alone_s > 0 else 0.0
    numbers: dict[str, Number] = {
        "minibatch_s": event.minibatch_s,
        "alone_s": event.alone_s,
        "in_a_row": event.in_a_row,
    }
    message = f"{owner.job_id} is {slowdown:.1%} slower beside it, in {event.in_a_row} profiles in a row"
    reason = Reason(code="SlowsOwnerDown", message=message, numbers=numbers)
    yield GuestExpelled(
        job_id=guest.job_id,
        attempt=guest.attempt,
        owner_job=owner.job_id,
        slowdown_ratio=slowdown,
        reason=reason,
    )
    if guest.spec.restartable:
        yield JobPreempted(job_id=guest.job_id, attempt=guest.attempt, reason=reason)
    else:
        yield from given_way(cell, guest, reason, now_s)


@machine.evolves(GuestExpelled)
def guest_expelled(cell: Cell, event: GuestExpelled, now_s: float) -> None:
    cell.jobs[event.job_id].expelled_by[event.owner_job] = None
