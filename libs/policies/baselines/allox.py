"""AlloX (Le et al., EuroSys'20): the smallest average completion time, by matching jobs to places in queues.

Each GPU has a queue; a job that is the k-th from the end of a queue delays k jobs, itself included, by its processing
time there. Matching jobs to (GPU, k) at the cost k * time minimises the sum of completion times. What runs may be
moved, and no job is kept from starving: the paper's filter that lets only the longest waiting jobs take part is off
(alpha = 1), as the order by size alone is what it is compared for.

AlloX knows jobs on one GPU. One on more is matched by its GPU time, as if it ran on one GPU for so much longer, and
starts when as many GPUs of the type are left by the shorter ones that are first in a queue.
"""

from __future__ import annotations

from math import inf

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from libs.contracts.placement import Share
from libs.policies.agnostic import mean_rate
from libs.policies.problem import Job, Problem, Solution

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def allox(problem: Problem) -> Solution:
    """The first of each queue runs now; the objective is the average completion time in seconds."""
    own = {t: pool.gpus for t, pool in problem.cluster.items() if pool.shares_gpus_with is None}
    seen = problem.jobs if problem.options.heterogeneity_aware else [_at_mean_rate(job, own) for job in problem.jobs]
    jobs = [job for job in seen if _shortest(job, own) < inf]
    if not jobs:
        return Solution(objective=0.0, allocation=[])
    jobs.sort(key=lambda job: -_shortest(job, own))  # the matching is found four times faster in this order
    queues = [min(count, len(jobs)) for count in own.values()]
    gpus = [t for t, count in zip(own, queues, strict=True) for _ in range(count)]
    kind = np.repeat(np.arange(len(own)), queues)
    times = np.array([[_time(job, t, own) for t in own] for job in jobs])[:, kind]
    places, total = _matched(times)
    firsts = [(jobs[row], gpus[gpu]) for gpu, row in _firsts(places, times)]
    return Solution(objective=total / len(jobs), allocation=_running(firsts, own))


def _at_mean_rate(job: Job, own: dict[str, int]) -> Job:
    """The job with the same rate on all types where it fits and can run."""
    rates = {t: job.throughputs.get(t, 0.0) for t, gpus in own.items() if job.scale_factor <= gpus}
    mean = mean_rate(list(rates.values()), [own[t] for t in rates])
    return replace(job, throughputs={t: mean for t, rate in rates.items() if rate > 0})


def _shortest(job: Job, own: dict[str, int]) -> float:
    return min((_time(job, gpu_type, own) for gpu_type in own), default=inf)


def _time(job: Job, gpu_type: str, own: dict[str, int]) -> float:
    """Seconds of one GPU, for all remaining steps; infinite where the job cannot run."""
    rate = job.throughputs.get(gpu_type, 0.0)
    if rate <= 0 or job.scale_factor > own[gpu_type]:
        return inf
    return (1.0 if job.steps_remaining is None else job.steps_remaining) * job.scale_factor / rate


def _matched(times: Floats) -> tuple[list[tuple[int, int]], float]:
    """(GPU, place from the end) of each job, and the sum of completion times, from (jobs, GPUs) processing times.

    Queues are looked at to a depth that is doubled until the deepest places stay empty. Then deeper ones would stay
    empty as well: in the dual an empty place is worth nothing, and a place behind it costs every job more.
    """
    jobs, gpus = times.shape
    depth = min(jobs, 2 * -(-jobs // gpus))
    while True:
        costs = (times[:, :, None] * np.arange(1.0, depth + 1)).reshape(jobs, -1)
        columns = _assigned(costs)
        if columns is not None and (depth == jobs or not (columns % depth == depth - 1).any()):
            places = [divmod(column, depth) for column in columns.tolist()]
            return places, float(costs[np.arange(jobs), columns].sum())
        depth = min(jobs, 2 * depth)


def _assigned(costs: Floats) -> Ints | None:
    """The column of each row in a cheapest matching; None: there are too few columns for some rows."""
    if costs.shape[1] < costs.shape[0]:
        return None
    from scipy.optimize import linear_sum_assignment  # here, because it takes long, and few ask for this policy

    try:
        columns: Ints = linear_sum_assignment(costs)[1]
    except ValueError:
        return None
    return columns


def _firsts(places: list[tuple[int, int]], times: Floats) -> list[tuple[int, int]]:
    """(GPU, job) of the job that is farthest from the end of each queue, shortest first."""
    best: dict[int, tuple[int, int]] = {}
    for row, (gpu, place) in enumerate(places):
        best[gpu] = max(best.get(gpu, (-1, -1)), (place, row))
    firsts = [(gpu, row) for gpu, (_, row) in best.items()]
    return sorted(firsts, key=lambda first: (times[first[1], first[0]], first))


def _running(firsts: list[tuple[Job, str]], own: dict[str, int]) -> list[Share]:
    """Whole GPUs, as long as there are enough of the type for the gang."""
    left = dict(own)
    shares = []
    for job, gpu_type in firsts:
        if job.scale_factor <= left[gpu_type]:
            left[gpu_type] -= job.scale_factor
            shares.append(Share(jobs=(job.id,), time={gpu_type: 1.0}))
    return shares
