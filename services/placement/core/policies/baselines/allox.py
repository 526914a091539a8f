"""AlloX (Le et al., EuroSys'20): the smallest average completion time, by matching jobs to places in queues.

Each GPU has a queue; a job that is the k-th from the end of a queue delays k jobs, itself included, by its processing
time there. Matching jobs to (GPU, k) at the cost k * time minimises the sum of completion times. AlloX knows jobs on
one GPU; one on more is matched by its GPU time, and starts when so many GPUs of the type are left.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from services.placement.core.policies.allocation.problem import Job, Problem, Share, Solution

Floats = NDArray[np.float64]
NEVER = 1e15
"""Cost of a place on a type where the job cannot run."""
DEPTH = 4
"""Queues are looked at to so many times their average length: beyond that no job of an optimum was ever seen."""


def allox(problem: Problem) -> Solution:
    """The first of each queue runs now; the objective is the average completion time in seconds."""
    jobs = [job for job in problem.jobs if any(_time(job, t, problem) < NEVER for t in problem.cluster)]
    gpus = [t for t, pool in problem.cluster.items() if pool.shares_gpus_with is None for _ in range(pool.gpus)]
    if not jobs or not gpus:
        return Solution(objective=0.0, allocation=[])
    depth = min(len(jobs), DEPTH * -(-len(jobs) // len(gpus)))
    times = np.array([[_time(job, t, problem) for t in problem.cluster] for job in jobs])
    kinds = np.array([list(problem.cluster).index(t) for t in gpus])
    cost = _costs(times[:, kinds], depth)
    rows, columns = linear_sum_assignment(cost)
    firsts = _firsts(rows, columns, depth)
    total = float(cost[rows, columns].sum()) / len(jobs)
    return Solution(objective=total, allocation=_running(problem, [(jobs[row], gpus[gpu]) for gpu, row in firsts]))


def _time(job: Job, gpu_type: str, problem: Problem) -> float:
    """Seconds of one GPU, for all remaining steps."""
    rate = job.throughputs.get(gpu_type, 0.0)
    if rate <= 0 or job.scale_factor > problem.cluster[gpu_type].gpus:
        return NEVER
    if not problem.options.heterogeneity_aware:
        rate = 1.0
    return (1.0 if job.steps_remaining is None else job.steps_remaining) * job.scale_factor / rate


def _costs(times: Floats, depth: int) -> Floats:
    """(jobs, GPUs * depth): place k of GPU g is column g * depth + k - 1."""
    places: Floats = np.arange(1.0, depth + 1)
    costs: Floats = (times[:, :, None] * places).reshape(len(times), -1)
    return costs


def _firsts(rows: NDArray[np.int64], columns: NDArray[np.int64], depth: int) -> list[tuple[int, int]]:
    """(GPU, job) of the job that is farthest from the end of each queue, in order of GPU."""
    best: dict[int, tuple[int, int]] = {}
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        gpu, place = divmod(column, depth)
        best[gpu] = max(best.get(gpu, (-1, -1)), (place, row))
    return [(gpu, row) for gpu, (_, row) in sorted(best.items())]


def _running(problem: Problem, firsts: list[tuple[Job, str]]) -> list[Share]:
    """Whole GPUs, as long as there are enough of the type for the gang."""
    left = {t: pool.gpus for t, pool in problem.cluster.items()}
    shares = []
    for job, gpu_type in firsts:
        if job.throughputs.get(gpu_type, 0.0) > 0 and job.scale_factor <= left[gpu_type]:
            left[gpu_type] -= job.scale_factor
            shares.append(Share(jobs=(job.id,), time={gpu_type: 1.0}))
    return shares
