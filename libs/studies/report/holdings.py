"""Who held which GPU when, read from a control log."""

from __future__ import annotations

from collections.abc import Iterable

from libs.contracts.admission import JobRejected
from libs.contracts.cluster import TaskPlacement
from libs.contracts.envelope import Envelope
from libs.contracts.failure_analysis import JobAbandoned
from libs.contracts.gateway import JobArrived
from libs.contracts.placement import (
    AttemptFailed,
    JobCancelled,
    JobMoved,
    JobPlaced,
    JobQueued,
    JobSucceeded,
    TimeSliceStarted,
)
from libs.sim.clusters import Cluster
from libs.studies.report.intervals import Interval

RELEASING = (JobQueued, AttemptFailed, JobSucceeded, JobCancelled, JobAbandoned, JobRejected)


def intervals_of(log: Iterable[Envelope], cluster: Cluster, end_s: float) -> list[Interval]:
    """Every stretch of every GPU, in order of their ends; what is still held ends at `end_s`."""
    types = {server.node_id: server.gpu_type for server in cluster.servers}
    tenants: dict[str, str] = {}
    held: dict[str, tuple[float, list[TaskPlacement]]] = {}
    found: list[Interval] = []

    def release(job_id: str, now_s: float) -> None:
        start_s, gang = held.pop(job_id, (now_s, []))
        if now_s > start_s:
            found.extend(
                Interval(job_id, tenants[job_id], task.node_id, index, types[task.node_id], start_s, now_s)
                for task in gang
                for index in task.gpu_indices
            )

    for envelope in log:
        event = envelope.event
        if isinstance(event, JobArrived):
            tenants[event.job_id] = event.spec.tenant
        elif isinstance(event, (JobPlaced, *RELEASING)):
            release(event.job_id, envelope.time_s)
            if isinstance(event, JobPlaced):
                held[event.job_id] = (envelope.time_s, event.gang)
        elif isinstance(event, JobMoved):
            release(event.job_id, envelope.time_s)
            held[event.job_id] = (envelope.time_s, event.gang)
        elif isinstance(event, TimeSliceStarted):
            for job_id in event.suspended:
                release(job_id, envelope.time_s)
            for seat in event.resumed:
                release(seat.job_id, envelope.time_s)
                held[seat.job_id] = (envelope.time_s, seat.gang)
    for job_id in list(held):
        release(job_id, end_s)
    return found
