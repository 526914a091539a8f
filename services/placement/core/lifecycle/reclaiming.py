"""Jobs give back what their tenants have borrowed, because quota has reclaimed it for a job within a guarantee.

A victim is suspended where the policy's first way for it is that (`giving_way.py`): its GPUs are free at once, its
claim on quota ends at once, and it stands still on its servers until quota grants its attempt again. Any other leaves
its GPUs as any preempted job does, and its claim ends with that: it is not queued again but waits for quota, as it did
before its first attempt. One that has no GPUs yet leaves the queue at once. Quota may speak of a job that has ended,
failed or become a guest meanwhile: its claim is over in any case, and nothing follows.
"""

from __future__ import annotations

from libs.contracts.placement import JobQueued
from libs.contracts.quota import QuotaReclaimed
from libs.contracts.reasons import PendingReason, Reason
from libs.kernel.machine import Turn
from libs.policies.policy import Way
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job, Phase
from services.placement.core.lifecycle.giving_way import way_of
from services.placement.core.lifecycle.placing import leave_queue, preempt, preempted
from services.placement.core.lifecycle.suspending.changes import change_places
from services.placement.core.lifecycle.suspending.deciding import slice_of, suspended
from services.placement.core.lifecycle.suspending.domains import domain_of
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
        elif _may_stand_still(cell, job):
            _stand_still(cell, job, reason, turn)
        elif not job.stopping:
            preempt(cell, preempted(job, reason), turn)
    return Look()


def _may_stand_still(cell: Cell, job: Job) -> bool:
    """Whether the victim stands still already, or has begun and is suspended under the policy in force."""
    if not job.lasts or job.move is not None:
        return False
    begun = all(task.node_id in job.tasks.started for task in job.gang)
    return job.suspended or (begun and way_of(cell, job, but=Way.SHRINK) is Way.SUSPEND)


def _stand_still(cell: Cell, job: Job, reason: Reason, turn: Turn[Cell]) -> None:
    if job.suspended:
        leave_queue(cell, job, "Reclaimed", turn)
    else:
        domain = domain_of(cell, job)
        ends_s = max(slice_of(cell, domain).ends_s, turn.now_s)
        change_places(cell, suspended(cell, domain, [job], ends_s=ends_s, reason=reason), turn)
    said = JobQueued(job_id=job.job_id, attempt=job.attempt, reason=reason, returns_to_quota=True, suspended=True)
    turn.emit(said)
