"""Attempts of which nobody has seen the end: their node was lost with them, and may come back with them.

The job goes on in a newer attempt meanwhile, and both may train at the same time. If the newer one fails then, that
means nothing for the job: the older one may be the cause, e.g. by a file that both write. So AttemptFailed names it.
"""

from __future__ import annotations

from msgspec.structs import replace

from libs.contracts.agent import JobExited, NodeJoined
from libs.contracts.placement import Overlap
from libs.contracts.reasons import Reason
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job, Phase


def lose(job: Job, node_id: str) -> None:
    """The node is lost while the job's attempt has a task there that has not ended."""
    job.strays.append(Overlap(attempt=job.attempt, node_id=node_id, seen=False))


def settle(cell: Cell, event: NodeJoined) -> None:
    """A lost node is back: with a task that is over it has run beside whatever newer attempt there is."""
    there = {(ref.job_id, ref.attempt) for ref in event.tasks}
    for job in cell.jobs.values():
        for stray in [each for each in job.strays if each.node_id == event.node_id]:
            job.strays.remove(stray)
            if (job.job_id, stray.attempt) in there:
                job.strays.append(replace(stray, seen=True))
            else:
                _ended(job, stray)


def end(cell: Cell, event: JobExited) -> None:
    """The end of a task is known at last, if it was a stray's; when it was, its node alone knows."""
    job = cell.jobs.get(event.job_id)
    if job is None or not job.strays:
        return
    for stray in [each for each in job.strays if (each.node_id, each.attempt) == (event.node_id, event.attempt)]:
        job.strays.remove(stray)
        _ended(job, stray)


def beside(job: Job) -> Overlap | None:
    """An older attempt that has run, or may have, while the job's attempt did; one that was seen before others."""
    older = [each for each in (*job.strays, *job.tasks.beside) if each.attempt < job.attempt]
    return next((each for each in older if each.seen), older[0] if older else None)


def told_with(reason: Reason, overlap: Overlap | None) -> Reason:
    """The reason of a failure, with the attempt that overlapped it."""
    if overlap is None:
        return reason
    message = f"{reason.message}; {overlap.words}"
    return replace(reason, message=message, numbers={**reason.numbers, "overlapped_attempt": overlap.attempt})


def _ended(job: Job, stray: Overlap) -> None:
    """It concerns the attempt that is there now, and none that begins later."""
    if job.phase is Phase.ACTIVE and stray.attempt < job.attempt:
        job.tasks.beside.append(stray)
