"""The result of a simulation as `simulation-result/1`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from libs.contracts.read_models import STATUS_BY_STATE
from libs.sim.clusters import Cluster
from libs.sim.outcomes import Outcome

FORMAT = "simulation-result/1"
SIZES = ("1", "2-4", ">4")
"""Jobs by the GPUs that they ask for, as the Philly study's figure 3 has them."""


def result(
    jobs: Sequence[Outcome],
    cluster: Cluster,
    *,
    events: int,
    policy: str,
    options: Mapping[str, Any],
    seed: int,
    simulated_s: float,
    steps_100_s: Mapping[str, float | None] | None = None,
    measure: tuple[int, int] | None = None,
    cost_per_hour: Mapping[str, float] | None = None,
    wall_s: float | None = None,
) -> dict[str, Any]:
    """The `simulation-result/1` document, ready for JSON.

    Averages and percentiles of times are over jobs that succeeded; queueing and its two parts over all
    jobs that were ever started. What is unknown is null: the time to 100 steps of jobs without a known
    rate, the cost without prices.

    Args:
        jobs: what came of each, in order of arrival.
        cluster: for the number of GPUs.
        events: so many there were on control.
        policy: name of the placement policy.
        options: what the user chose, copied into the document.
        seed: of the run.
        simulated_s: virtual time that has passed.
        steps_100_s: {job id: when its 100th step was done}.
        measure: the summary is over these jobs in order of arrival; None: all.
        cost_per_hour: {GPU type: price of one GPU for one hour}.
        wall_s: how long the run took in real time.
    """
    early = steps_100_s or {}
    first, end = measure or (0, len(jobs))
    measured = jobs[first:end]
    return {
        "format": FORMAT,
        "policy": policy,
        "options": dict(options),
        "cluster": cluster.gpus,
        "seed": seed,
        "jobs": [_row(job, early.get(job.job_id)) for job in jobs],
        "summary": {
            **_times(measured, early),
            "by_status": _by_status(measured),
            "waits_s": _waits(measured),
            "starts": {
                "all": sum(job.starts for job in measured),
                "out_of_order": sum(job.starts_out_of_order for job in measured),
                "delaying": sum(job.starts_delaying for job in measured),
            },
            "gpu_utilisation": _utilisation(measured, cluster),
            "cost": _cost(measured, cost_per_hour),
            "wall_s": wall_s,
            "simulated_s": simulated_s,
            "events": events,
        },
    }


def _row(job: Outcome, steps_100_s: float | None) -> dict[str, Any]:
    return {
        "job_id": job.job_id,
        "submit_s": job.submit_s,
        "first_start_s": job.first_start_s,
        "steps_100_s": steps_100_s,
        "finish_s": job.finish_s,
        "jct_s": None if job.finish_s is None else job.finish_s - job.submit_s,
        "gpu_s": job.gpu_s,
        "preemptions": job.preemptions,
        "migrations": job.migrations,
        "status": job.status,
        "study_status": job.study_status,
        "retries": job.retries,
        "waits_s": job.waits_s,
        "gpu_s_by_attempt": {str(number): gpu_s for number, gpu_s in job.gpu_s_by_attempt.items()},
    }


def _times(jobs: Sequence[Outcome], early: Mapping[str, float | None]) -> dict[str, Any]:
    done = [job for job in jobs if job.status == "SUCCEEDED"]
    jct = sorted(job.finish_s - job.submit_s for job in done if job.finish_s is not None)
    ends = [job.finish_s for job in jobs if job.finish_s is not None]
    started = [job for job in jobs if job.first_start_s is not None]
    to_100 = [at - job.submit_s for job in jobs if (at := early.get(job.job_id)) is not None]
    return {
        "jobs": len(jobs),
        "completed": len(done),
        "avg_jct_s": _mean(jct),
        "p50_jct_s": _percentile(jct, 0.50),
        "p99_jct_s": _percentile(jct, 0.99),
        "makespan_s": max(ends) - min(job.submit_s for job in jobs) if ends else None,
        "avg_queue_s": _mean([job.queue_s for job in started]),
        "avg_time_to_100_steps_s": _mean(to_100),
        "fair_share_delay_s": _mean([job.fair_share_s for job in started]),
        "fragmentation_delay_s": _mean([job.fragmentation_s for job in started]),
    }


def _by_status(jobs: Sequence[Outcome]) -> dict[str, dict[str, float]]:
    """Jobs and GPU time of each status, as the Philly study's table 5 has them."""
    found = {status: [job for job in jobs if job.study_status == status] for status in STATUS_BY_STATE.values()}
    return {
        status: {
            "jobs": len(each),
            "gpu_s": math.fsum(job.gpu_s for job in each),
            "retries": sum(job.retries for job in each),
        }
        for status, each in found.items()
    }


def _waits(jobs: Sequence[Outcome]) -> dict[str, Any]:
    """Seconds by cause of all these jobs, of each tenant's, and of each of the study's classes of size."""
    tenants, sizes = sorted({job.tenant for job in jobs}), {class_of(job.gpus): None for job in jobs}
    return {
        "cell": _sum_waits(jobs),
        "by_tenant": {name: _sum_waits(job for job in jobs if job.tenant == name) for name in tenants},
        "by_gpus": {
            name: _sum_waits(job for job in jobs if class_of(job.gpus) == name) for name in SIZES if name in sizes
        },
    }


def class_of(gpus: int) -> str:
    """The class of a job's size."""
    return SIZES[0] if gpus <= 1 else SIZES[1] if gpus <= 4 else SIZES[2]


def _sum_waits(jobs: Iterable[Outcome]) -> dict[str, float]:
    found: dict[str, float] = {}
    for job in jobs:
        for cause, waited_s in job.waits_s.items():
            found[cause] = found.get(cause, 0.0) + waited_s
    return dict(sorted(found.items()))


def _utilisation(jobs: Sequence[Outcome], cluster: Cluster) -> float | None:
    """GPU time held by these jobs over the GPU time of the cluster, from first submission to last end.

    A GPU with an owner and guests counts once for each of them: with guests there may be more than 1.
    """
    ends = [job.finish_s for job in jobs if job.finish_s is not None]
    span_s = max(ends) - min(job.submit_s for job in jobs) if ends else 0.0
    return sum(job.gpu_s for job in jobs) / (span_s * cluster.total_gpus) if span_s > 0 else None


def _cost(jobs: Sequence[Outcome], cost_per_hour: Mapping[str, float] | None) -> float | None:
    if cost_per_hour is None:
        return None
    return sum(
        gpu_s / 3600 * cost_per_hour.get(gpu_type, 0.0) for job in jobs for gpu_type, gpu_s in job.cost_gpu_s.items()
    )


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return math.fsum(listed) / len(listed) if listed else None


def _percentile(ascending: list[float], ratio: float) -> float | None:
    """The smallest value that at least `ratio` of the values do not exceed."""
    return ascending[max(0, math.ceil(ratio * len(ascending)) - 1)] if ascending else None
