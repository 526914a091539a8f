"""Jobs give back what their tenants have borrowed, because quota has reclaimed it for a job within a guarantee.

A victim leaves its GPUs as any preempted job does, and its claim on quota ends with that: it is not queued again but
waits for quota, as it did before its first attempt. One that has no GPUs yet leaves the queue at once. Quota may speak
of a job that has ended, failed or become a guest meanwhile: its claim is over in any case, and nothing follows.
"""

from __future__ import annotations

from libs.contracts.placement import JobQueued
from libs.contracts.quota import QuotaReclaimed
from libs.contracts.reasons import PendingReason, Reason
from libs.kernel.machine import Turn
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job, Phase
from services.placement.core.lifecycle.placing import leave_queue, preempt, preempted
from services.placement.core.lifecycle.table import Look, machine, reacts


@machine.evolves(QuotaReclaimed)
def reclaimed(cell: Cell, event: QuotaReclaimed, now_s: float) -> list[Job]:
    """The victims with claims that are to end here."""
    found = [job for victim in event.victims if (job := cell.jobs.get(victim.job_id)) is not None]
    victims = [job for job in found if job.phase in (Phase.QUEUED, Phase.ACTIVE) and not job.opportunistic]
    for job in victims:
        job.returns_to_quota = True
    return victims


@reacts(QuotaReclaimed)
def give_back(cell: Cell, event: QuotaReclaimed, turn: Turn[Cell]) -> Look:
    """Attempts that are ending anyway end as they would have."""
    message = f"{event.gpu_type or 'its'} GPUs are reclaimed for {event.job_id} of tenant {event.tenant}"
    reason = Reason(code=PendingReason.FAIR_SHARE, message=message, numbers=event.reason.numbers)
    for job in turn.changed:
        if job.phase is Phase.QUEUED:
            leave_queue(cell, job, "Reclaimed", turn)
            turn.emit(JobQueued(job_id=job.job_id, attempt=job.next_attempt, reason=reason, returns_to_quota=True))
        elif not job.stopping:
            preempt(cell, preempted(job, reason), turn)
    return Look()
