"""How much time each row was promised, and how much it has had.

The paper's mechanism gives a round to the rows with the highest X_opt / f, where f is the fraction of time received
since the allocation was last computed. Counting from zero at every reset starves small shares when resets are
frequent (the authors therefore recompute at most every 1,920 s). Here promises and receipts are carried over resets
as one number per row and GPU type, in seconds: the credit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from libs.contracts.placement import Share
from services.placement.core.cell import Cell
from services.placement.core.jobs import ACTIVE, Job
from services.placement.core.mechanisms.rounds.memory import Memory, Rounds
from services.placement.core.mechanisms.rounds.ranking import forget
from services.placement.core.sharing.accounts import charge


def row_key(jobs: Sequence[str]) -> str:
    """Names a row: a job alone, or a pair in any order."""
    if len(jobs) == 1:
        return jobs[0]
    return "+".join(sorted(jobs))


def booked(cell: Cell, memory: Memory, now_s: float) -> Rounds:
    """The books up to now.

    New ones begin with the first allocation of a policy: what jobs have had before is not charged to their shares.
    """
    if memory.current is None:
        for job in _active(cell):
            charge(job, now_s)
        memory.current = Rounds(shares=[], question="", computed_s=now_s, booked_s=now_s)
    book(cell, memory, now_s)
    return memory.current


def book(cell: Cell, memory: Memory, now_s: float) -> None:
    """Turn the time since the last booking into credit, and charge what was received."""
    rounds = memory.current
    if rounds is None or now_s <= rounds.booked_s:
        return
    forget(memory)
    passed_s, rounds.booked_s = now_s - rounds.booked_s, now_s
    crowded = rounds.crowded
    for share, credit in zip(rounds.shares, rounds.credit.values(), strict=True):
        due_s = passed_s * crowded.get(share.jobs[0], 1.0) if crowded else passed_s
        for gpu_type, fraction in share.time.items():
            credit[gpu_type] += fraction * due_s
    pay(cell, rounds, _active(cell), now_s)


def _active(cell: Cell) -> list[Job]:
    return [job for job in cell.without_guests() if job.phase is ACTIVE]


def pay(cell: Cell, rounds: Rounds, jobs: Iterable[Job], now_s: float) -> None:
    """Charge what each job has received to its row's credit, unless no share claims its GPUs."""
    credits, beyond, paired = rounds.credit, rounds.beyond, bool(cell.book.companions)
    for job in jobs:
        part_s = charge(job, now_s)
        if part_s <= 0 or job.job_id in beyond:
            continue
        row = job.job_id
        if paired and (partner := cell.book.paired(row)) is not None:
            row, part_s = row_key([row, partner]), part_s / 2
        credit = credits.get(row)
        if credit is not None and job.gpu_type in credit:
            credit[job.gpu_type] -= part_s


def keep_credit(memory: Memory, rounds: Rounds, shares: list[Share]) -> None:
    """Only what the new shares still promise stays a deficit: a row or a type without a share has no claim."""
    forget(memory)
    kept: dict[str, dict[str, float]] = {}
    for share in shares:
        key = share.jobs[0] if len(share.jobs) == 1 else row_key(share.jobs)
        before = rounds.credit.get(key)
        if before is None:
            kept[key] = dict.fromkeys(share.time, 0.0)
        else:
            kept[key] = {gpu_type: before.get(gpu_type, 0.0) for gpu_type in share.time}
    rounds.credit = kept
