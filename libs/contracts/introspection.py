"""What introspection found out from telemetry."""

from __future__ import annotations

from libs.contracts.base import Event, Topic, event

OWNER = "introspection"


@event("telemetry.window_closed.v1", owner=OWNER, subject="job_id", topic=Topic.PROFILES)
class WindowClosed(Event, frozen=True, kw_only=True):
    """A job's telemetry, condensed over one tumbling window. At least once: consumers drop a window seen before."""

    job_id: str
    attempt: int
    window_start_s: float
    window_s: float
    ranks: int
    """Ranks that reported in the window."""
    minibatches: int
    """Mini-batches done in the window, of the slowest rank."""
    minibatches_total: int
    """Since the attempt started, of the slowest rank."""
    rate_per_s: float
    loss: float | None
    memory_peak_bytes: int
    memory_min_bytes: int


@event("job.profiled.v1", owner=OWNER, subject="job_id")
class JobProfiled(Event, frozen=True, kw_only=True):
    """The job's progress as measured: at most one per job and profiling interval."""

    job_id: str
    attempt: int
    window_start_s: float
    window_s: float
    minibatches_total: int
    rate_per_s: float
    """Mini-batches per second of the whole job (the slowest rank's)."""
    loss: float | None
    memory_peak_bytes: int
    memory_min_bytes: int


@event("node.lost.v1", owner=OWNER, subject="node_id")
class NodeLost(Event, frozen=True, kw_only=True):
    """Nothing was heard of the node for `silent_s` although the bus delivered: treat its tasks as gone.

    A dead node cannot report itself, hence introspection says it. When the node comes back it joins again.
    """

    node_id: str
    silent_s: float
    incarnation: int
    """The incarnation of the agent that fell silent; a later NodeJoined has a higher one."""
