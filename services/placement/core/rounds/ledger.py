"""Who was promised how much time, and who has had it.

The paper's mechanism gives a round to the rows with the highest X_opt / f, where f is the fraction of time received
since the allocation was last computed. Counting from zero at every reset starves small shares when resets are
frequent (the authors therefore recompute at most every 1,920 s). Here promises and receipts are carried over resets
as one number per row and GPU type, in seconds: the credit.
"""

from __future__ import annotations

from libs.contracts.placement import Share
from services.placement.core.rounds.rates import configuration_of, rates
from services.placement.core.state import Job, Phase, Rounds, State


def row_key(jobs: list[str]) -> str:
    """Names a row: a job alone, or a pair in any order."""
    return "+".join(sorted(jobs))


def book(state: State, now_s: float) -> None:
    """Turn the time since the last booking into credit, and charge what was received."""
    rounds = state.rounds
    if rounds is None:
        return
    passed_s = max(0.0, now_s - rounds.booked_s)
    for share in rounds.shares:
        credit = rounds.credit.setdefault(row_key(share.jobs), {})
        for gpu_type, fraction in share.time.items():
            credit[gpu_type] = credit.get(gpu_type, 0.0) + fraction * passed_s
    rounds.booked_s = now_s
    for job in state.jobs.values():
        if job.phase is Phase.ACTIVE:
            charge(state, job, now_s)


def charge(state: State, job: Job, now_s: float) -> None:
    """Book the time that the job has held its GPUs."""
    passed_s, job.charged_s = max(0.0, now_s - job.charged_s), now_s
    gpu_type = type_of(state, job)
    rounds = state.rounds
    partner = state.jobs.get(rounds.packs.get(job.job_id, "")) if rounds is not None else None
    job.steps_done += _rate(state, job, partner, gpu_type) * passed_s
    if rounds is not None and job.job_id not in rounds.beyond:
        row = [job.job_id] if partner is None else [job.job_id, partner.job_id]
        credit = rounds.credit.get(row_key(row))
        if credit is not None and gpu_type in credit:
            credit[gpu_type] -= passed_s / len(row)


def _rate(state: State, job: Job, partner: Job | None, gpu_type: str) -> float:
    """Steps per second, alone or packed."""
    if partner is not None and partner.gang == job.gang:
        pair = state.pair_rates.get(configuration_of(job), {}).get(configuration_of(partner), {}).get(gpu_type)
        if pair is not None:
            return pair[0]
    return rates(state, job, [gpu_type]).get(gpu_type, 0.0)


def type_of(state: State, job: Job) -> str:
    """The GPU type that the job holds."""
    task = job.gang[0]
    return state.nodes[task.node_id].gpus[task.gpu_indices[0]].gpu_type


def keep_credit(rounds: Rounds, shares: list[Share]) -> None:
    """Only what the new shares still promise is owed: a row or a type without a share has no claim."""
    kept: dict[str, dict[str, float]] = {}
    for share in shares:
        key = row_key(share.jobs)
        before = rounds.credit.get(key, {})
        kept[key] = {gpu_type: before.get(gpu_type, 0.0) for gpu_type in share.time}
    rounds.credit = kept
