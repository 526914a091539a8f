"""Work as a policy takes it that does not tell GPU types apart.

To such a policy a job has rate 1 wherever it can run. Steps of different jobs are of different lengths, so that its
work is counted in seconds: those that its steps take on the cluster's own mix of types.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from libs.policies.problem import Job


def mean_rate(rates: Sequence[float], gpus: Sequence[float]) -> float:
    """Steps per second on the types on which the job can run, weighted by their GPUs; 0: it can run nowhere.

    Args:
        rates: (T,) steps per second; 0: it cannot run there.
        gpus: (T,) of each type; where all that the job can run on have none of their own, each counts the same.
    """
    usable = [(rate, count) for rate, count in zip(rates, gpus, strict=True) if rate > 0]
    total = sum(count for _, count in usable)
    if total > 0:
        return sum(rate * count for rate, count in usable) / total
    return sum(rate for rate, _ in usable) / len(usable) if usable else 0.0


def with_work_in_seconds(job: Job, rate: float) -> Job:
    """The job with what remains of it in seconds at this mean rate, in the place of steps."""
    return replace(job, steps_remaining=job.steps_remaining / rate) if job.steps_remaining and rate > 0 else job
