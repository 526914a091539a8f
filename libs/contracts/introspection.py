"""What introspection found out from telemetry."""

from __future__ import annotations

from libs.contracts.base import Event, Topic, event
from libs.contracts.reasons import Reason

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
    gpu_utilisation_ratio: float | None = None
    """Mean over its GPUs, with everything that ran there; None where nothing is known."""
    loss_nonfinite: str = ""
    """`nan`, `inf` or `-inf` where the newest loss is no finite number; `loss` is None then."""


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
    gpu_utilisation_ratio: float | None = None
    """Mean over its GPUs, with everything that ran there; None where nothing is known."""
    loss_nonfinite: str = ""
    """`nan`, `inf` or `-inf` where the newest loss is no finite number; `loss` is None then."""


@event("pack.succeeded.v1", owner=OWNER, subject="job_id")
class PackSucceeded(Event, frozen=True, kw_only=True):
    """Two jobs do more together than by turns. Said once per pack."""

    job_id: str
    with_job: str
    packed_ratio: float
    """Sum of their rates together, each as a part of its rate alone; by turns it would be 1."""
    reason: Reason


@event("pack.failed.v1", owner=OWNER, subject="job_id")
class PackFailed(Event, frozen=True, kw_only=True):
    """Two jobs do less together than by turns, or nothing that could be measured; also later than in the trial."""

    job_id: str
    with_job: str
    packed_ratio: float | None
    """As in PackSucceeded; None: nothing was measured."""
    reason: Reason


@event("node.lost.v1", owner=OWNER, subject="node_id")
class NodeLost(Event, frozen=True, kw_only=True):
    """Nothing was heard of the node for `silent_s` although the bus delivered: treat its tasks as gone.

    A dead node cannot report itself, hence introspection says it. When the node comes back it joins again.
    """

    node_id: str
    silent_s: float
    incarnation: int
    """The incarnation of the agent that fell silent; a later NodeJoined has a higher one."""
