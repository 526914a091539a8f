"""How long an attempt may take to begin: what hangs before its start would keep its GPUs for ever.

The attempt that is to take over from another has as long, and for the same reason: when its time is over the move is
given up, and the job goes on where it is.
"""

from __future__ import annotations

from libs.contracts.agent import JobSettingUp
from libs.contracts.reasons import Number, Reason
from libs.kernel.machine import Turn
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.abandoning import DESTINATION_FAILED
from services.placement.core.lifecycle.current import active
from services.placement.core.lifecycle.moving import handing_over
from services.placement.core.lifecycle.placing import stop_all
from services.placement.core.lifecycle.table import machine


def next_limit_s(cell: Cell) -> float | None:
    """When the first of the attempts that have not begun runs out of time; None: all have begun."""
    limits = list(cell.preparing.values())
    if cell.starting:
        # Ascending, because each attempt is put behind all others when it is placed: the first look is enough.
        limits.append(next(iter(cell.starting.values())) + cell.settings.start_limit_s)
    return min(limits, default=None)


@machine.evolves(JobSettingUp)
def setting_up(cell: Cell, event: JobSettingUp, now_s: float) -> None:
    """The time to begin counts from the end of the time that the node gives the setup."""
    moves = handing_over.move_to(cell, event.job_id, event.attempt) is not None
    if not moves and active(cell, event.job_id, event.attempt) is None:
        return
    limit_s = now_s + event.limit_s + cell.settings.start_limit_s
    if cell.starting.pop(event.job_id, None) is not None or event.job_id in cell.preparing:
        cell.preparing[event.job_id] = max(limit_s, cell.preparing.get(event.job_id, 0.0))


def run_out(cell: Cell, now_s: float) -> list[Job]:
    """Note which attempts have run out of time; returns their jobs. Each is noted once.

    One that is being stopped ends anyway; one that is suspended keeps no GPU from others, and has its time again when
    it goes on.
    """
    late = [job_id for job_id, placed_s in cell.starting.items() if now_s >= placed_s + cell.settings.start_limit_s]
    late += [job_id for job_id, limit_s in cell.preparing.items() if now_s >= limit_s]
    jobs = []
    for job_id in late:
        cell.begun(job_id)
        job = cell.jobs[job_id]
        if job.move is not None:
            jobs.append(job)
        elif job.stays:
            job.stopping = job.tasks.overdue = True
            jobs.append(job)
    return jobs


def give_up(cell: Cell, job: Job, turn: Turn[Cell]) -> None:
    """Stop the tasks of an attempt that has run out of time; it fails when the last of them has ended."""
    limit_s = cell.settings.start_limit_s
    numbers: dict[str, Number] = {"start_limit_s": limit_s}
    if (move := job.move) is not None:
        missing = ", ".join(task.node_id for task in move.gang if task.node_id not in move.started)
        message = f"its new tasks were to have begun within {limit_s:g} s, and have not on {missing}"
        handing_over.give_up(cell, job, Reason(code=DESTINATION_FAILED, message=message, numbers=numbers), turn)
        return
    missing = ", ".join(task.node_id for task in job.gang if task.node_id not in job.tasks.started)
    message = f"the attempt has had {limit_s:g} s to begin, and has not on {missing}"
    stop_all(cell, job, 0.0, Reason(code="StartTimedOut", message=message, numbers=numbers), turn)
