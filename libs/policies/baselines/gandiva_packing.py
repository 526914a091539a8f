"""Gandiva's ad-hoc packing as the Gavel paper compares with it: time slices for all, pairs by trial under overload.

Gandiva packs jobs at random and keeps what has helped. Here the order of the trials comes from the job ids, so that it
can be replayed, and a trial is a look at the pair's known rates. GPU types are all the same to it, but on a type where
two jobs cannot be packed (out of memory, say) they take turns.
"""

from __future__ import annotations

from zlib import crc32

from libs.contracts.placement import Share
from libs.policies.problem import Job, Pair, Problem, Solution


def gandiva_packing(problem: Problem) -> Solution:
    """Equal time for every row, alone or packed; the objective is that part of the time."""
    own = {t: pool.gpus for t, pool in problem.cluster.items() if pool.shares_gpus_with is None and pool.gpus > 0}
    total = sum(own.values())
    jobs = {job.id: job for job in problem.jobs if any(_runs(job, t, own) for t in own)}
    excess = sum(job.scale_factor for job in jobs.values()) - total
    packs = _packs(problem.pairs, jobs, own, excess)
    packed = {job_id for pack in packs for job_id in pack.jobs}
    single = [job for job in jobs.values() if job.id not in packed]
    width = sum(jobs[pack.jobs[0]].scale_factor for pack in packs) + sum(job.scale_factor for job in single)
    part = min(1.0, total / width) if width else 0.0
    slices = {t: part * gpus / total for t, gpus in own.items()}
    shares = [share for pack in packs for share in _shares_of(pack, jobs, own, slices)]
    shares += [Share(jobs=(job.id,), time={t: x for t, x in slices.items() if _runs(job, t, own)}) for job in single]
    return Solution(objective=part, allocation=shares)


def _packs(pairs: list[Pair], jobs: dict[str, Job], own: dict[str, int], excess: int) -> list[Pair]:
    """Pairs that have helped, tried in an order like chance, until no job is in excess."""
    order = sorted(pairs, key=lambda pair: (crc32("+".join(sorted(pair.jobs)).encode()), pair.jobs))
    taken: dict[str, None] = {}
    packs: list[Pair] = []
    for pair in order:
        a, b = pair.jobs
        if excess <= 0:
            break
        if a in jobs and b in jobs and a not in taken and b not in taken and _helps(pair, jobs, own):
            packs.append(pair)
            taken.update({a: None, b: None})
            excess -= jobs[a].scale_factor
    return packs


def _helps(pair: Pair, jobs: dict[str, Job], own: dict[str, int]) -> bool:
    """Whether the two together keep more than one job's speed, over those GPUs where they can be packed."""
    a, b = (jobs[job_id] for job_id in pair.jobs)
    gained = 0.0
    for gpu_type in _packable(pair, jobs, own):
        together = pair.throughputs[gpu_type]
        kept = together[0] / a.throughputs[gpu_type] + together[1] / b.throughputs[gpu_type]
        gained += own[gpu_type] * (kept - 1.0)
    return gained > 0


def _shares_of(pair: Pair, jobs: dict[str, Job], own: dict[str, int], slices: dict[str, float]) -> list[Share]:
    """The pair's slices: both at once where they can be packed, else each alone for half of the time."""
    packable = _packable(pair, jobs, own)
    shares = [Share(jobs=pair.jobs, time={t: slices[t] for t in packable})]
    for job_id in pair.jobs:
        alone = {t: x / 2 for t, x in slices.items() if t not in packable and _runs(jobs[job_id], t, own)}
        if alone:
            shares.append(Share(jobs=(job_id,), time=alone))
    return shares


def _packable(pair: Pair, jobs: dict[str, Job], own: dict[str, int]) -> list[str]:
    """Types on which both run, alone and together."""
    return [
        t
        for t in own
        if all(_runs(jobs[job_id], t, own) for job_id in pair.jobs) and min(pair.throughputs.get(t, (0.0, 0.0))) > 0
    ]


def _runs(job: Job, gpu_type: str, own: dict[str, int]) -> bool:
    return job.throughputs.get(gpu_type, 0.0) > 0 and job.scale_factor <= own[gpu_type]
