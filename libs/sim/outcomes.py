"""What came of the jobs: a fold over the control log that runs along with a simulation."""

from __future__ import annotations

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
    JobMoved,
    JobPlaced,
    JobPreempted,
    JobQueued,
    JobSucceeded,
    TimeSliceStarted,
)
from libs.contracts.quota import QuotaDeferred
from libs.contracts.reasons import PendingReason
from libs.sim.clusters import Cluster

FAIR_SHARE_CODES = (PendingReason.EXCEEDS_QUOTA, PendingReason.FAIR_SHARE)
FRAGMENTATION_CODES = (PendingReason.GANG_FRAGMENTED, PendingReason.LOCALITY_RELAXING)
STATUS: dict[type[Event], str] = {
    JobSucceeded: "SUCCEEDED",
    JobCancelled: "CANCELLED",
    JobAbandoned: "FAILED",
    JobRejected: "REJECTED",
}


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
    """The attempt that has been placed; 0 while it waits."""
    suspended: bool = False
    """Between two of its time slices."""
    suspended_s: float = 0.0
    """Time between time slices."""
    suspensions: int = 0


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
            TimeSliceStarted: self._sliced,
            JobMoved: self._moved,
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
        job.suspended = False

    def _sliced(self, event: TimeSliceStarted, time_s: float) -> None:
        for job_id in event.suspended:
            job = self.jobs[job_id]
            self._account(job, time_s)
            job.suspended = True
            job.suspensions += 1
        for seat in event.resumed:
            job = self.jobs[seat.job_id]
            self._account(job, time_s)
            job.gang, job.suspended = seat.gang, False

    def _moved(self, event: JobMoved, time_s: float) -> None:
        """Its GPUs elsewhere count from now on; while they were kept for it, it used those that it had."""
        job = self.jobs[event.job_id]
        self._account(job, time_s)
        job.attempt, job.gang, job.suspended = event.attempt, event.gang, False

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
        if job.attempt and job.suspended:
            job.suspended_s += passed_s
        elif job.attempt:
            for task in job.gang:
                gpu_type, gpu_s = self._types[task.node_id], passed_s * len(task.gpu_indices)
                job.gpu_s += gpu_s
                job.cost_gpu_s[gpu_type] = job.cost_gpu_s.get(gpu_type, 0.0) + gpu_s
        else:
            self._account_waiting(job, passed_s)

    def _account_waiting(self, job: Outcome, passed_s: float) -> None:
        job.queue_s += passed_s
        if job.wait_code in FAIR_SHARE_CODES:
            job.fair_share_s += passed_s
        elif job.wait_code in FRAGMENTATION_CODES:
            job.fragmentation_s += passed_s
