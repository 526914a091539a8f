"""Every job on its own 1/n of the cluster, whatever suits it (the Gavel paper's X_iso)."""

from __future__ import annotations

from libs.contracts.placement import Share
from libs.policies.problem import Job, Problem, Solution


def isolated(problem: Problem) -> Solution:
    """1/n of the GPUs' time, spread over the types as the cluster is; what a job cannot use is lost to it.

    The objective is the smallest normalised throughput, as for `max_min_fairness`.
    """
    own = {t: pool.gpus for t, pool in problem.cluster.items() if pool.shares_gpus_with is None and pool.gpus > 0}
    total = sum(own.values())
    shares, levels = [], []
    for job in problem.jobs:
        part = min(1.0, total / (len(problem.jobs) * job.scale_factor)) if total else 0.0
        time = {t: part * gpus / total for t, gpus in own.items() if _runs(job, t, gpus)}
        if time:
            shares.append(Share(jobs=(job.id,), time=time))
            levels.append(part * job.scale_factor / job.weight)
    return Solution(objective=min(levels, default=0.0), allocation=shares)


def _runs(job: Job, gpu_type: str, gpus: int) -> bool:
    return job.throughputs.get(gpu_type, 0.0) > 0 and job.scale_factor <= gpus
