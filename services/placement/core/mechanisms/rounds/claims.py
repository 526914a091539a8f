"""What wants to run in the coming round: rows with a deficit, and jobs that take what no row claims."""

from __future__ import annotations

from collections.abc import Mapping

from libs.contracts.placement import Share
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job
from services.placement.core.mechanisms.rounds.memory import Rounds
from services.placement.core.mechanisms.rounds.pinning import needs, open_rates, open_to_pinned
from services.placement.core.mechanisms.rounds.places import Present
from services.placement.core.mechanisms.rounds.selection import NOTHING, Backfill, Claim, Room

NO_CREDIT: Mapping[str, float] = {}

LAG_ROUNDS, LAG_PART = 1.0, 0.05
"""How far a row may be from its share before jobs change places: so many rounds, or this part of the time that its job
has had. To a young job a round matters, and to one with a deadline; an old one without can wait for more and still get
the same fractions of its time."""


def claims(cell: Cell, rounds: Rounds, jobs: list[Job], present: Present) -> list[Claim]:
    """The rows with a deficit of time on a type, and those that run there and have not had too much yet.

    A row's priority is its deficit at the end of the round, in units of its lag; one more where it runs.
    """
    competing = {job.job_id: job for job in jobs}
    round_s, staying, crowded = cell.settings.round_s, present.running, rounds.crowded
    begins: dict[tuple[str, int], Mapping[Room, int]] = {}
    """{(GPU type, GPUs): what a job needs that begins there}: the same for all such jobs."""
    found = []
    for share, credit in zip(rounds.shares, rounds.credit.values(), strict=True):
        row, time = share.jobs, share.time
        first = competing.get(row[0])
        if first is None:
            continue
        lag_s, stays = _lag_s(rounds, share, first, round_s), row[0] in staying
        if len(row) > 1:
            last = competing.get(row[-1])
            if last is None:
                continue
            lag_s = min(lag_s, _lag_s(rounds, share, last, round_s))
            stays = stays and row[-1] in staying and first.gpu_type == last.gpu_type
        coming_s = round_s * crowded.get(row[0], 1.0) if crowded else round_s
        spec, pinned = first.spec, row[0] in present.pinned
        width = spec.gpus.count
        possible = open_to_pinned(cell, first, list(time)) if pinned else time
        for gpu_type, fraction in time.items():
            priority = (credit[gpu_type] + fraction * coming_s) / lag_s
            if stays and gpu_type == first.gpu_type:
                priority += 1.0
            if priority <= 0 or gpu_type not in possible:
                continue
            rooms = NOTHING
            if pinned:
                rooms = needs(cell, first, gpu_type, pinned=True)
            elif not spec.restartable:
                place = gpu_type, width
                if (known := begins.get(place)) is None:
                    known = begins[place] = needs(cell, first, gpu_type, pinned=False)
                rooms = known
            found.append(Claim(row, gpu_type, width, rooms, priority, first.seq))
    return found


def _lag_s(rounds: Rounds, share: Share, job: Job, round_s: float) -> float:
    """How far a row of the job may be from its share: of several rows each has its part of the job's time."""
    least_s, lag_s = LAG_ROUNDS * round_s, LAG_PART * job.account.attained_s
    if lag_s <= least_s or job.spec.deadline_s is not None:
        return least_s
    rows = rounds.rows[job.job_id]
    if len(rows) == 1:
        return lag_s
    promised = [sum(rounds.shares[row].time.values()) for row in rows]
    part = sum(share.time.values()) / max(sum(promised), 1e-12)
    return max(least_s, part * lag_s)


def by_deficit(rounds: Rounds, jobs: list[Job]) -> list[Job]:
    """The jobs with the largest deficit first, then in queue order."""
    return sorted(jobs, key=lambda job: deficit_order(rounds, job))


def deficit_order(rounds: Rounds, job: Job) -> tuple[float, tuple[int, int, str]]:
    """A job's place among those with the largest deficit first; no two have the same."""
    return -sum(rounds.credit.get(job.job_id, NO_CREDIT).values()), job.order


def backfill(cell: Cell, job: Job, types: list[str], *, pinned: bool) -> Backfill:
    """What the job, which is pinned or not, does with a GPU that is left."""
    known = seen(cell, job, types)
    return Backfill(
        job_id=job.job_id,
        width=job.spec.gpus.count,
        rates=known,
        running_on=job.gpu_type if job.stays else "",
        needs={} if job.spec.restartable else {t: needs(cell, job, t, pinned=pinned) for t in known},
    )


def seen(cell: Cell, job: Job, types: list[str]) -> dict[str, float]:
    """The job's rates as the policy sees them: an agnostic one sees no difference between types."""
    known = open_rates(cell, job, types)
    return known if cell.options.heterogeneity_aware else dict.fromkeys(known, 1.0)
