"""What came of the jobs: a fold over the control log, and `simulation-result/1` made of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from libs.contracts.admission import JobRejected
from libs.contracts.agent import JobStarted
from libs.contracts.base import Event
from libs.contracts.cluster import TaskPlacement
from libs.contracts.failure_analysis import JobAbandoned
from libs.contracts.gateway import JobArrived
from libs.contracts.migration import MigrationCompleted
from libs.contracts.placement import (
    AttemptFailed,
    JobCancelled,
    JobPlaced,
    JobPreempted,
    JobQueued,
    JobSucceeded,
)
from libs.contracts.quota import QuotaDeferred
from libs.contracts.reasons import PendingReason
from libs.sim.clusters import Cluster

FORMAT = "simulation-result/1"
FAIR_SHARE_CODES = (PendingReason.EXCEEDS_QUOTA, PendingReason.FAIR_SHARE)
FRAGMENTATION_CODES = (PendingReason.GANG_FRAGMENTED, PendingReason.LOCALITY_RELAXING)


class Outcome(msgspec.Struct):
    """One job so far. Times on the virtual clock."""

    job_id: str
    gpus: int
    submit_s: float
    status: str = "UNFINISHED"
    """SUCCEEDED, FAILED, CANCELLED, REJECTED, or UNFINISHED when the run ended first."""
    first_start_s: float | None = None
    """When all tasks of its gang ran for the first time."""
    finish_s: float | None = None
    gpu_s: float = 0.0
    """GPUs held, times how long."""
    cost_gpu_s: dict[str, float] = {}
    """`gpu_s` by GPU type."""
    preemptions: int = 0
    migrations: int = 0
    queue_s: float = 0.0
    """Time without GPUs, from submission to the end."""
    fair_share_s: float = 0.0
    """Part of `queue_s` for which quota or its place in the queue was named as the cause."""
    fragmentation_s: float = 0.0
    """Part of `queue_s` for which fragmentation or locality was named as the cause."""
    wait_code: str = ""
    since_s: float = 0.0
    """When the present time with or without GPUs, or the present cause of waiting, began."""
    gang: list[TaskPlacement] = []
    started: int = 0
    attempt: int = 0
    """The attempt that holds GPUs; 0 while it waits."""


class Outcomes:
    """Folds the control log. Takes a few steps per event, so that it can run along."""

    def __init__(self, cluster: Cluster) -> None:
        self.jobs: dict[str, Outcome] = {}
        """In order of arrival."""
        self.events = 0
        self._types = {server.node_id: server.gpu_type for server in cluster.servers}
        self._handlers: dict[type[Event], Any] = {
            JobArrived: self._arrived,
            QuotaDeferred: self._waits,
            JobQueued: self._waits,
            JobPlaced: self._placed,
            JobStarted: self._started,
            JobPreempted: self._preempted,
            MigrationCompleted: self._migrated,
            AttemptFailed: self._failed,
            JobSucceeded: self._ended,
            JobCancelled: self._ended,
            JobAbandoned: self._ended,
            JobRejected: self._ended,
        }

    def take(self, event: Event, time_s: float) -> None:
        """The next event of the log."""
        self.events += 1
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event, time_s)

    def _arrived(self, event: JobArrived, time_s: float) -> None:
        self.jobs[event.job_id] = Outcome(
            job_id=event.job_id, gpus=event.spec.gpus.count, submit_s=time_s, since_s=time_s
        )

    def _waits(self, event: QuotaDeferred | JobQueued, time_s: float) -> None:
        job = self.jobs[event.job_id]
        self._account(job, time_s)
        job.attempt, job.wait_code = 0, event.reason.code

    def _placed(self, event: JobPlaced, time_s: float) -> None:
        job = self.jobs[event.job_id]
        self._account(job, time_s)
        job.attempt, job.gang, job.started, job.wait_code = event.attempt, event.gang, 0, ""

    def _started(self, event: JobStarted, time_s: float) -> None:
        job = self.jobs[event.job_id]
        if event.attempt == job.attempt:
            job.started += 1
            if job.started == len(job.gang) and job.first_start_s is None:
                job.first_start_s = time_s

    def _preempted(self, event: JobPreempted, time_s: float) -> None:
        self.jobs[event.job_id].preemptions += 1

    def _migrated(self, event: MigrationCompleted, time_s: float) -> None:
        self.jobs[event.job_id].migrations += 1

    def _failed(self, event: AttemptFailed, time_s: float) -> None:
        job = self.jobs[event.job_id]
        self._account(job, time_s)
        job.attempt = 0

    def _ended(self, event: JobSucceeded | JobCancelled | JobAbandoned | JobRejected, time_s: float) -> None:
        job = self.jobs[event.job_id]
        self._account(job, time_s)
        job.attempt, job.gang, job.finish_s = 0, [], time_s
        job.status = STATUS[type(event)]

    def _account(self, job: Outcome, now_s: float) -> None:
        """Book the time since the last change."""
        passed_s, job.since_s = max(0.0, now_s - job.since_s), now_s
        if job.attempt:
            job.gpu_s += passed_s * job.gpus
            for task in job.gang:
                gpu_type = self._types[task.node_id]
                job.cost_gpu_s[gpu_type] = job.cost_gpu_s.get(gpu_type, 0.0) + passed_s * len(task.gpu_indices)
            return
        job.queue_s += passed_s
        if job.wait_code in FAIR_SHARE_CODES:
            job.fair_share_s += passed_s
        elif job.wait_code in FRAGMENTATION_CODES:
            job.fragmentation_s += passed_s


STATUS: dict[type[Event], str] = {
    JobSucceeded: "SUCCEEDED",
    JobCancelled: "CANCELLED",
    JobAbandoned: "FAILED",
    JobRejected: "REJECTED",
}


def result(
    outcomes: Outcomes,
    cluster: Cluster,
    *,
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
        outcomes: the fold of the run.
        cluster: for the number of GPUs.
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
    jobs = list(outcomes.jobs.values())
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
            "gpu_utilisation": _utilisation(measured, cluster),
            "cost": _cost(measured, cost_per_hour),
            "wall_s": wall_s,
            "simulated_s": simulated_s,
            "events": outcomes.events,
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
    }


def _times(jobs: list[Outcome], early: Mapping[str, float | None]) -> dict[str, Any]:
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


def _utilisation(jobs: list[Outcome], cluster: Cluster) -> float | None:
    """GPU time held by these jobs over the GPU time of the cluster, from first submission to last end."""
    ends = [job.finish_s for job in jobs if job.finish_s is not None]
    span_s = max(ends) - min(job.submit_s for job in jobs) if ends else 0.0
    return sum(job.gpu_s for job in jobs) / (span_s * cluster.total_gpus) if span_s > 0 else None


def _cost(jobs: list[Outcome], cost_per_hour: Mapping[str, float] | None) -> float | None:
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
