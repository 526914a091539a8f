"""Telemetry, and the facts around it, by hand."""

from __future__ import annotations

from libs.bus import codec
from libs.bus.port import Bus
from libs.contracts.agent import MinibatchProfiled
from libs.contracts.base import Event
from libs.contracts.cluster import TaskPlacement
from libs.contracts.envelope import Envelope
from libs.contracts.placement import JobPlaced
from libs.contracts.reasons import Reason
from libs.kernel.ids import request_id


async def give(bus: Bus, *facts: tuple[float, Event]) -> None:
    """Append facts, each with its time in seconds; the same fact of the same time has the same id."""
    envelopes = [
        Envelope(id=request_id("test", f"{time_s}/{event.subject}"), source="test", time_s=time_s, event=event)
        for time_s, event in facts
    ]
    await bus.append([codec.outgoing(envelope) for envelope in envelopes])


def placed(job_id: str) -> JobPlaced:
    """The job's first attempt has GPU 0 of node n1."""
    gang = [TaskPlacement(node_id="n1", gpu_indices=[0], first_rank=0)]
    return JobPlaced(job_id=job_id, attempt=1, gang=gang, reason=Reason(code="Test", message="test"))


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
