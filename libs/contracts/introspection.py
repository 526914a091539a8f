"""What introspection found out from telemetry."""

from __future__ import annotations

import msgspec

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


@event("clock.skewed.v1", owner=OWNER, subject="node_id")
class ClockSkewed(Event, frozen=True, kw_only=True):
    """The clock of a node is off by 2 s or more, by 2 s more or less than before, or right again.

    Nothing is decided by it: cores and timers go by the log's clock. Dates in the node's own files and lines are off.
    """

    node_id: str
    incarnation: int
    skew_s: float
    """Time by the node's clock less that by the log's: above 0 where it is ahead; 0 where it is right again."""


@event("gpu.load_changed.v1", owner=OWNER, subject="node_id")
class GpuLoadChanged(Event, frozen=True, kw_only=True):
    """How busy a GPU has been over the last `window_s`.

    Said when the load has crossed the bound below which the GPU takes guests, or has moved by 0.1.
    """

    node_id: str
    index: int
    utilisation_ratio: float
    """Mean over the window, from 0 to 1."""
    window_s: float
    memory_used_bytes: int = 0
    """At the end of the window, by all that runs there."""


@event("interference.detected.v1", owner=OWNER, subject="job_id")
class InterferenceDetected(Event, frozen=True, kw_only=True):
    """An owner's mini-batches take longer beside guests than alone. Once per profile in which it holds."""

    job_id: str
    attempt: int
    beside: list[str]
    """Its guests, ascending."""
    minibatch_s: float
    """Mean time of a mini-batch beside them."""
    alone_s: float
    """The same without guests."""
    in_a_row: int
    """Profiles of this kind up to now, this one included."""
    reason: Reason


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """What one process does."""

    node_id: str
    rank: int | None
    """None for a process that has not trained yet."""
    pid: int
    text: str
    """Of each thread, the innermost call first; the end of it where it is long. Empty: `note` says why."""
    note: str = ""


@event("job.stalled.v1", owner=OWNER, subject="job_id")
class JobStalled(Event, frozen=True, kw_only=True):
    """The job had a rhythm, and none of its ranks has done anything for far longer than that. Once per episode.

    The episode ends with JobRecovered, or with the attempt. What follows is the tenant's choice (TenantConfigured).
    """

    job_id: str
    attempt: int
    quiet_s: float
    """Since the last sign of the rank that was the last to show one, without time in which the job was suspended."""
    limit_s: float
    """After which it is a stall; time in which the job was busy counts less."""
    p99_s: float
    """Seconds that 99 of 100 mini-batches of its slowest rank kept to."""
    minibatches_total: int
    """Done by the furthest rank when it stopped."""
    stacks: list[Stack] = []
    """What its processes were doing, by node and rank; at most 8."""
    stacks_note: str = ""
    """Why stacks are missing."""
    reason: Reason


@event("gpu.idle.v1", owner=OWNER, subject="job_id")
class GpuIdle(Event, frozen=True, kw_only=True):
    """The job holds GPUs on which nothing is computed, and does no mini-batches. Once per episode, as JobStalled."""

    job_id: str
    attempt: int
    idle_s: float
    limit_s: float
    gpus: int
    """That it holds."""
    reason: Reason


@event("job.recovered.v1", owner=OWNER, subject="job_id")
class JobRecovered(Event, frozen=True, kw_only=True):
    """The job goes on after JobStalled or JobStuck, or uses its GPUs again after GpuIdle."""

    job_id: str
    attempt: int
    alarm: str
    """Which episode is over: `stalled`, `idle` or `stuck`."""
    minibatches_total: int
    reason: Reason


@event("job.stuck.v1", owner=OWNER, subject="job_id")
class JobStuck(Event, frozen=True, kw_only=True):
    """The job stands, and nothing that is known would ever bring it on: a service or an agent owes it something.

    Its processes are not to blame, as they are for JobStalled: what was awaited next has not been said within its
    bound, or the job waits for GPUs that have been free for as long. Once per episode, which ends with JobRecovered, or
    with the job.
    """

    job_id: str
    attempt: int
    """Its latest number, placed or waiting; 0 before the first grant."""
    awaited: str
    """What was to come: `word`, `place`, `start`, `suspension`, `resumption`, `move` or `end`."""
    owed_by: list[str]
    """The service that is to bring it on, or `agent of NODE` for each of those that are."""
    stood_s: float
    """How long it has stood, as far as it was watched."""
    limit_s: float
    """How long it may."""
    gpus: int
    """That it holds meanwhile."""
    reason: Reason


@event("loss.diverged.v1", owner=OWNER, subject="job_id")
class LossDiverged(Event, frozen=True, kw_only=True):
    """Several losses in a row are NaN or infinite: training has failed, whatever the exit code. Once per attempt."""

    job_id: str
    attempt: int
    rank: int
    loss_nonfinite: str
    """`nan`, `inf` or `-inf`."""
    in_a_row: int
    minibatches_total: int
    """Of that rank, when it was seen."""
    reason: Reason


@event("job.converged.v1", owner=OWNER, subject="job_id")
class JobConverged(Event, frozen=True, kw_only=True):
    """The job's loss has not improved for as many epochs as were asked for. Once per job, and only for one that asked.

    What follows is the job's own choice (`when_converged`): nothing, or JobCancelRequested with this event's cause.
    """

    job_id: str
    attempt: int
    metric: str
    """The loss's name."""
    epoch: float
    """The latest, at which that was found."""
    best: float
    """The lowest loss so far."""
    best_epoch: float
    converged_epoch: float
    """The first with a loss within the ratio of the best one."""
    gpu_s: float
    """GPU seconds of the job so far."""
    gpu_s_since: float
    """Of these, after `converged_epoch`."""
    reason: Reason


@event("host.profiled.v1", owner=OWNER, subject="node_id")
class HostProfiled(Event, frozen=True, kw_only=True):
    """CPU and memory of a node's host, with everything that runs there: at most one per node and minute."""

    node_id: str
    incarnation: int
    window_start_s: float
    window_s: float
    samples: int
    """Heartbeats that it is made of."""
    cpus: int
    cpu_utilisation_ratio: float
    """Mean over the CPUs and the window."""
    memory_bytes: int
    memory_used_mean_bytes: int
    """What cannot be had by other processes without swapping."""
    memory_used_peak_bytes: int
