"""Telemetry by hand."""

from __future__ import annotations

from libs.contracts.agent import MinibatchProfiled


def minibatches(job_id: str, total: int, done: int = 5, *, rank: int = 0, attempt: int = 1) -> MinibatchProfiled:
    """One second of a rank."""
    return MinibatchProfiled(
        job_id=job_id,
        attempt=attempt,
        node_id="n1",
        rank=rank,
        world_size=1,
        minibatches=done,
        minibatches_total=total,
        interval_s=1.0,
        minibatch_mean_s=1.0 / done,
        loss=1.0 / total,
        memory_peak_bytes=1000,
        memory_min_bytes=100,
    )
