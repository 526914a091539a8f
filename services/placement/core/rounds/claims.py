"""Who wants to run in the coming round: rows that are owed time, and jobs that take what nobody claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.placement.core.rounds import ledger
from services.placement.core.rounds.rates import rates
from services.placement.core.rounds.selection import RENEWAL_BONUS, Claim, Wish
from services.placement.core.state import Job, Rounds, State


def claims(state: State, rounds: Rounds, jobs: list[Job], staying: Mapping[str, Job]) -> list[Claim]:
    """What each row will be owed on each type at the end of this round, running rows a little more.

    Args:
        staying: those of the jobs that hold GPUs and may keep them, by id.
    """
    competing = {job.job_id: job for job in jobs}
    round_s, bonus_s = state.round_s, RENEWAL_BONUS * state.round_s
    found = []
    for share in rounds.shares:
        first, last = competing.get(share.jobs[0]), competing.get(share.jobs[-1])
        if first is None or last is None:
            continue
        credit = rounds.credit[ledger.row_key(share.jobs)]
        running_on = _where_all_run(share.jobs, staying)
        for gpu_type, fraction in share.time.items():
            owed_s = credit[gpu_type] + fraction * round_s
            if owed_s > 0:
                owed_s += bonus_s if gpu_type == running_on else 0.0
                found.append(Claim(share.jobs, gpu_type, first.spec.gpus.count, owed_s, first.seq))
    return found


def _where_all_run(row: Sequence[str], staying: Mapping[str, Job]) -> str:
    """The GPU type on which all jobs of a row, one or two, may stay; empty: there is none."""
    first, last = staying.get(row[0]), staying.get(row[-1])
    return first.gpu_type if first is not None and last is not None and first.gpu_type == last.gpu_type else ""


def by_debt(rounds: Rounds, jobs: list[Job]) -> list[Job]:
    """Who is owed most first, then in queue order."""
    return sorted(jobs, key=lambda job: (-sum(rounds.credit.get(job.job_id, {}).values()), job.order))


def wish(state: State, job: Job, types: list[str]) -> Wish:
    """What the job does with a GPU that is left."""
    return Wish(
        job_id=job.job_id,
        width=job.spec.gpus.count,
        rates=seen(state, job, types),
        running_on=job.gpu_type if job.stays else "",
    )


def seen(state: State, job: Job, types: list[str]) -> dict[str, float]:
    """The job's rates as the policy sees them: an agnostic one sees no difference between types."""
    known = rates(state, job, types)
    return known if state.options.heterogeneity_aware else dict.fromkeys(known, 1.0)
