"""Which job held which GPU when, read from a control log."""

from __future__ import annotations

from collections.abc import Iterable

from libs.contracts.envelope import Envelope
from libs.lifecycle import Attempt, Holding, Lives
from libs.sim.clusters import Cluster
from libs.studies.report.intervals import Interval


def intervals_of(log: Iterable[Envelope], cluster: Cluster, end_s: float) -> list[Interval]:
    """Every stretch of every GPU, in order of their ends; what is still held ends at `end_s`."""
    types = {server.node_id: server.gpu_type for server in cluster.servers}
    lives = Lives()
    ended: list[Attempt | Holding] = []
    for envelope in log:
        ended += lives.take(envelope.event, envelope.time_s)
    ended += lives.open()
    return [
        interval
        for holding in ended
        if isinstance(holding, Holding)
        for interval in _intervals(holding, end_s if holding.end_s is None else holding.end_s, types)
    ]


def _intervals(holding: Holding, end_s: float, types: dict[str, str]) -> Iterable[Interval]:
    """One per GPU; none of a stretch that has no length."""
    if end_s > holding.begin_s:
        for task in holding.gang:
            for index in task.gpu_indices:
                node_id, gpu_type = task.node_id, types[task.node_id]
                yield Interval(holding.job_id, holding.tenant, node_id, index, gpu_type, holding.begin_s, end_s)
