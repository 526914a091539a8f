"""A job hangs, has diverged or leaves its GPUs idle: what its tenant wants done about it.

`tell` leaves it as it is: the fact is on the log. `stop` ends the attempt as a failure that no retry can help.
`requeue` starts it anew, from its checkpoint where it has one, `REQUEUES` times; a job that hangs again each time would
hold GPUs for ever, so it is stopped then.
"""

from __future__ import annotations

from libs.contracts.gateway import REQUEUE, STOP, TELL
from libs.contracts.introspection import GpuIdle, JobStalled, LossDiverged
from libs.contracts.reasons import Reason
from libs.kernel.machine import Turn
from libs.kernel.words import counted
from libs.node.alarms import alarm_of
from services.placement.core.cell import Cell
from services.placement.core.jobs import Alarm, Job
from services.placement.core.lifecycle.abandoning import abandon
from services.placement.core.lifecycle.current import active
from services.placement.core.lifecycle.placing import preempt, preempted, stop_all
from services.placement.core.lifecycle.table import Look, machine, reacts

REQUEUES = 3


@machine.evolves(JobStalled, GpuIdle, LossDiverged)
def alarmed(cell: Cell, event: JobStalled | GpuIdle | LossDiverged, now_s: float) -> str:
    """What is to be done; nothing about an attempt that is ending anyway."""
    job = active(cell, event.job_id, event.attempt)
    if job is None or not job.lasts:
        return TELL
    response = cell.responses.get(job.spec.tenant, {}).get(alarm_of(event), TELL)
    if response == REQUEUE and job.requeues >= REQUEUES:
        response = STOP
    if response == STOP:
        job.stopping, job.tasks.alarm = True, Alarm(name=alarm_of(event), reason=_reason(job, event.reason))
        cell.affects(job)
    elif response == REQUEUE:
        job.requeues += 1
    return response


@reacts(JobStalled, GpuIdle, LossDiverged)
def respond(cell: Cell, event: JobStalled | GpuIdle | LossDiverged, turn: Turn[Cell]) -> Look | None:
    """Stop the tasks; the job fails, or is queued again, when the last of them has ended."""
    job = active(cell, event.job_id, event.attempt)
    if job is None:
        return None
    freed = None
    if turn.changed == STOP and job.tasks.alarm is not None:
        freed = abandon(cell, job, job.tasks.alarm.reason, turn, goes_on=False)
        stop_all(cell, job, cell.settings.stop_grace_s, job.tasks.alarm.reason, turn)
    elif turn.changed == REQUEUE:
        freed = Look() if job.move is not None else None
        preempt(cell, preempted(job, event.reason), turn)
    return freed


def _reason(job: Job, reason: Reason) -> Reason:
    again = f"; it was queued again for that {counted(job.requeues, 'time')} before" if job.requeues else ""
    return Reason(code=reason.code, message=f"{reason.message}{again}", numbers=reason.numbers)
