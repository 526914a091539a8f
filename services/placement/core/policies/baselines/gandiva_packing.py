"""Gandiva's ad-hoc packing as the Gavel paper compares with it: time slices for all, pairs by trial under overload.

Gandiva packs jobs at random and keeps what has helped. Here the order of the trials comes from the job ids, so that it
can be replayed, and a trial is a look at the pair's known rates. GPU types are all the same to it.
"""

from __future__ import annotations

from zlib import crc32

from services.placement.core.policies.allocation.problem import Job, Pair, Problem, Share, Solution


def gandiva_packing(problem: Problem) -> Solution:
    """Equal time for every row, alone or packed; the objective is that part of the time."""
    own = {t: pool.gpus for t, pool in problem.cluster.items() if pool.shares_gpus_with is None and pool.gpus > 0}
    total = sum(own.values())
    jobs = {job.id: job for job in problem.jobs if any(_runs(job, t, own) for t in own)}
    wanted = sum(job.scale_factor for job in jobs.values())
    packs = _packs(problem.pairs, jobs, own, wanted - total) if wanted > total else []
    packed = {job_id for pack in packs for job_id in pack}
    rows = [*packs, *((job_id,) for job_id in jobs if job_id not in packed)]
    width = sum(jobs[row[0]].scale_factor for row in rows)
    part = min(1.0, total / width) if width else 0.0
    shares = []
    for row in rows:
        time = {t: part * gpus / total for t, gpus in own.items() if all(_runs(jobs[j], t, own) for j in row)}
        if time:
            shares.append(Share(jobs=tuple(row), time=time))
    return Solution(objective=part, allocation=shares)


def _packs(pairs: list[Pair], jobs: dict[str, Job], own: dict[str, int], excess: int) -> list[tuple[str, ...]]:
    """Pairs that have helped, tried in an order like chance, until nobody is in excess."""
    order = sorted(pairs, key=lambda pair: (crc32("+".join(sorted(pair.jobs)).encode()), pair.jobs))
    taken: dict[str, None] = {}
    packs: list[tuple[str, ...]] = []
    for pair in order:
        a, b = pair.jobs
        if excess <= 0:
            break
        if a in jobs and b in jobs and a not in taken and b not in taken and _helps(pair, jobs, own):
            packs.append((a, b))
            taken.update({a: None, b: None})
            excess -= jobs[a].scale_factor
    return packs


def _helps(pair: Pair, jobs: dict[str, Job], own: dict[str, int]) -> bool:
    """Whether the two together keep more than one job's speed, over the cluster's mix of types."""
    a, b = (jobs[job_id] for job_id in pair.jobs)
    kept = 0.0
    for gpu_type, gpus in own.items():
        alone_a, alone_b = a.throughputs.get(gpu_type, 0.0), b.throughputs.get(gpu_type, 0.0)
        together = pair.throughputs.get(gpu_type, (0.0, 0.0))
        if alone_a > 0 and alone_b > 0:
            kept += gpus * (together[0] / alone_a + together[1] / alone_b)
    return kept > sum(own.values())


def _runs(job: Job, gpu_type: str, own: dict[str, int]) -> bool:
    return job.throughputs.get(gpu_type, 0.0) > 0 and job.scale_factor <= own[gpu_type]
