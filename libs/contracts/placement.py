"""Placement's decisions, and the requests to agents that carry them out."""

from __future__ import annotations

from libs.contracts.base import Event, Topic, event
from libs.contracts.cluster import TaskPlacement
from libs.contracts.reasons import Reason

OWNER = "placement"


@event("job.queued.v1", owner=OWNER, subject="job_id")
class JobQueued(Event, frozen=True, kw_only=True):
    """The attempt waits for GPUs. Emitted when it starts to wait and when the cause (the reason's code) changes."""

    job_id: str
    attempt: int
    reason: Reason


@event("gang.reserved.v1", owner=OWNER, subject="job_id")
class GangReserved(Event, frozen=True, kw_only=True):
    """GPUs of these nodes are held back for the gang from now on: what gets free there is not given to others."""

    job_id: str
    attempt: int
    node_ids: list[str]
    gpus_held: int
    reason: Reason


@event("gang.released.v1", owner=OWNER, subject="job_id")
class GangReleased(Event, frozen=True, kw_only=True):
    """The gang's reservation has ended: it was placed, it left, or a better set of nodes was found."""

    job_id: str
    attempt: int
    reason: Reason


@event("job.placed.v1", owner=OWNER, subject="job_id")
class JobPlaced(Event, frozen=True, kw_only=True):
    """The attempt holds these GPUs, exclusively, until all of its tasks have exited."""

    job_id: str
    attempt: int
    gang: list[TaskPlacement]
    """One task per node, ascending by first rank."""
    reason: Reason


@event("job.preempted.v1", owner=OWNER, subject="job_id")
class JobPreempted(Event, frozen=True, kw_only=True):
    """The attempt is taken off its GPUs (drain, lost node) and goes back to the queue; no retry is used up."""

    job_id: str
    attempt: int
    reason: Reason


@event("attempt.failed.v1", owner=OWNER, subject="job_id")
class AttemptFailed(Event, frozen=True, kw_only=True):
    """Every task of the attempt has ended and the job did not succeed; failure analysis says what happens next."""

    job_id: str
    attempt: int
    node_id: str
    """Where the first failing task ran."""
    exit_code: int | None
    signal: int | None
    outcome: str
    """The failing task's `JobExited.outcome`."""
    stderr_tail: str = ""
    reason: Reason


@event("job.succeeded.v1", owner=OWNER, subject="job_id")
class JobSucceeded(Event, frozen=True, kw_only=True):
    """Final: every task of the attempt exited with code 0."""

    job_id: str
    attempt: int


@event("job.cancelled.v1", owner=OWNER, subject="job_id")
class JobCancelled(Event, frozen=True, kw_only=True):
    """Final: the job was cancelled and holds nothing any more."""

    job_id: str
    attempt: int
    """The last attempt that was started or waiting; 0 when there was none."""
    reason: Reason


@event("task.launch.v1", owner=OWNER, subject="node_id", topic=Topic.ORDERS)
class LaunchTask(Event, frozen=True, kw_only=True):
    """Start the node's part of a gang."""

    node_id: str
    job_id: str
    attempt: int
    name: str
    tenant: str
    command: list[str]
    env: dict[str, str]
    working_dir: str | None
    code_id: str | None
    gpu_indices: list[int]
    launcher: str
    first_rank: int
    world_size: int
    node_rank: int
    node_count: int
    rendezvous_host: str | None
    """Address of the rank-0 node; None for a gang on one node, whose agent finds a free port itself."""
    rendezvous_port: int | None
    time_limit_s: float | None


@event("task.stop.v1", owner=OWNER, subject="node_id", topic=Topic.ORDERS)
class StopTask(Event, frozen=True, kw_only=True):
    """End the task: politely (SIGTERM to its process group), after `grace_s` by force."""

    node_id: str
    job_id: str
    attempt: int
    grace_s: float
    reason: Reason


@event("task.suspend.v1", owner=OWNER, subject="node_id", topic=Topic.ORDERS)
class SuspendTask(Event, frozen=True, kw_only=True):
    """Stop the task's processes where they are; they keep their state."""

    node_id: str
    job_id: str
    attempt: int


@event("task.resume.v1", owner=OWNER, subject="node_id", topic=Topic.ORDERS)
class ResumeTask(Event, frozen=True, kw_only=True):
    """Let a suspended task go on."""

    node_id: str
    job_id: str
    attempt: int
