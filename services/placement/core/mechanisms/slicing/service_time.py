"""How much time on GPUs each job has had: by what its agents report, where they do.

A job that needs long to its next mini-batch boundary is still training meanwhile: that time is charged to it
(Gandiva, section 4.1). The time until it has been started or brought back is forgiven once it is; until then it
counts, so that a job that never starts does not keep its GPUs.
"""

from __future__ import annotations

from services.placement.core.cell import Cell
from services.placement.core.jobs import ACTIVE, Job
from services.placement.core.mechanisms.slicing.memory import Memory, ServiceTime


def had(memory: Memory, job: Job, now_s: float) -> float:
    """Seconds until now, per unit of weight."""
    time = memory.time(job)
    running_s = 0.0 if time.running_since_s is None else now_s - time.running_since_s
    return time.served_s + running_s / job.spec.weight


def begins(memory: Memory, job: Job, now_s: float) -> None:
    """It was given GPUs."""
    time = memory.time(job)
    if time.running_since_s is None:
        memory.times[job.job_id] = ServiceTime(served_s=time.served_s, running_since_s=now_s, awaited=True)


def has_begun(memory: Memory, job: Job, now_s: float) -> None:
    """All of its tasks run now."""
    time = memory.time(job)
    if time.awaited:
        memory.times[job.job_id] = ServiceTime(served_s=time.served_s, running_since_s=now_s)


def ends(memory: Memory, job: Job, now_s: float) -> None:
    """One of its tasks does not run any more."""
    if job.job_id in memory.times:
        memory.times[job.job_id] = ServiceTime(served_s=had(memory, job, now_s))


def begin_anew(cell: Cell, memory: Memory, now_s: float) -> None:
    """A policy with slices begins: what jobs have had under another is not counted."""
    running = [job.job_id for job in cell.without_guests() if job.phase is ACTIVE and not job.suspended]
    memory.times = {job_id: ServiceTime(running_since_s=now_s) for job_id in running}


def joins(cell: Cell, memory: Memory, job: Job, now_s: float) -> None:
    """A newcomer has had as much as the job that has had least where it is now: else it would have to catch up."""
    others = {job_id: None for task in job.gang for job_id in cell.residents[task.node_id] if job_id != job.job_id}
    least_s = min((had(memory, cell.jobs[job_id], now_s) for job_id in others), default=0.0)
    time = memory.time(job)
    if least_s > time.served_s:
        memory.times[job.job_id] = ServiceTime(
            served_s=least_s, running_since_s=time.running_since_s, awaited=time.awaited
        )
