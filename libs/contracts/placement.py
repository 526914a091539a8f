"""Placement's decisions, and the requests to agents that carry them out."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from libs.contracts.base import Event, Topic, event
from libs.contracts.cluster import TaskPlacement
from libs.contracts.reasons import Reason

OWNER = "placement"


@event("job.queued.v1", owner=OWNER, subject="job_id")
class JobQueued(Event, frozen=True, kw_only=True):
    """The attempt waits for GPUs. Emitted when it starts to wait and when its own cause (the reason's code) changes.

    An attempt that has been placed already is suspended, keeps its tasks, and waits for GPUs of its servers.

    Under policies that queue, jobs stand in lines. One job of a line leads it and says what it waits for; the others
    are told once that one goes first (`Behind`). A consumer may conclude that each of them waits for whatever the
    leader of the line waits for at the time, which may be another job than was named.
    """

    job_id: str
    attempt: int
    tried: bool = False
    """The attempt before was the job's trial and ended well: the job waits for TrialPassed, not for GPUs."""
    reason: Reason
    behind: str = ""
    """Where the cause is `Behind`: the job that goes first, at the time of the event."""
    line: str = ""
    """The line in which it stands; empty: it stands in none."""
    waits_for: str = ""
    """Where the cause is `TrialPending`: the cause for which its trial waits, and all that are behind it with it."""
    leads: bool = False
    """Whether it leads the line from now on. One that leads may be behind a job of another line."""
    returns_to_quota: bool = False
    """What it had borrowed was reclaimed: its claim has ended, and the attempt waits for quota before it may be placed.
    """
    suspended: bool = False
    """With `returns_to_quota`: the attempt stands still on its servers, and goes on there once it is granted."""


class ReservedPart(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a reservation keeps of one node."""

    node_id: str
    gpus: int
    """How many the gang is to have of this node."""
    kept: list[int] = []
    """Indices of those of them that are free, and so kept for it, ascending; the others become free later."""


@event("gang.reserved.v1", owner=OWNER, subject="job_id")
class GangReserved(Event, frozen=True, kw_only=True):
    """GPUs of these nodes are held back for the gang from now on: what gets free there is not given to others.

    The reservation grows without another event: the first free GPUs of the type on each node are kept, as many as
    `parts` says, and which GPUs are free is on the log already.
    """

    job_id: str
    attempt: int
    node_ids: list[str]
    gpus_held: int
    """Those of them that are free, and so kept for it, now; earlier versions counted all free GPUs of these nodes."""
    reason: Reason
    gpu_type: str = ""
    """Of the GPUs that are kept; empty in events of earlier versions, which kept whole nodes."""
    parts: list[ReservedPart] = []
    """What is kept of each node; together as many GPUs as the gang needs."""
    gpus_missing: int = 0
    """How many of the gang's GPUs are held by other jobs now."""
    until_s: float | None = None
    """When they are given back if the gang has not all of them; None: never."""
    try_number: int = 0
    """Number of the try to acquire GPUs, from 1; 0: the policy knows no tries."""
    relaxed: str = ""
    """What the gang accepts by now (`Locality`), in small letters; empty where the policy knows no tries."""


@event("gang.released.v1", owner=OWNER, subject="job_id")
class GangReleased(Event, frozen=True, kw_only=True):
    """The gang's reservation has ended: it was placed, it left, better nodes were found, or its time was over."""

    job_id: str
    attempt: int
    reason: Reason
    gpus_held: int = 0
    """What the gang had acquired, where the time was over."""
    try_number: int = 0
    """Number of the try, as GangReserved has said it; 0: the time was not over."""
    retry_s: float | None = None
    """When the gang tries again; None: the time was not over."""


class Role(StrEnum):
    """What a job is on its GPUs (AntMan, section 3.3)."""

    OWNER = "owner"
    GUEST = "guest"
    """An opportunistic job, on what the GPU's owner leaves, if it has one."""


@event("job.placed.v1", owner=OWNER, subject="job_id")
class JobPlaced(Event, frozen=True, kw_only=True):
    """The attempt holds these GPUs until all of its tasks have exited; alone, or together with `packed_with`."""

    job_id: str
    attempt: int
    gang: list[TaskPlacement]
    """One task per node, ascending by first rank."""
    reason: Reason
    packed_with: list[str] = []
    """Jobs that may hold the same GPUs at the same time (space sharing)."""
    role: str = "owner"
    """A `Role`."""
    passed: str = ""
    """Under `philly`: the first job before it in the queue that waits on; empty: it starts in order."""
    delays: str = ""
    """Of the jobs that it has passed, the first that loses free GPUs by it where it would acquire them; empty: none."""


@event("node.cordoned.v1", owner=OWNER, subject="node_id")
class NodeCordoned(Event, frozen=True, kw_only=True):
    """Nothing new is placed on these GPUs: they are suspected to be broken. Jobs that hold them go on.

    The node's agent is asked to test them (CheckGpus); NodeReturned ends this.
    """

    node_id: str
    gpu_indices: list[int]
    """Ascending."""
    reason: Reason


@event("node.returned.v1", owner=OWNER, subject="node_id")
class NodeReturned(Event, frozen=True, kw_only=True):
    """Cordoned GPUs may be used again: they have passed their test, or an operator says so."""

    node_id: str
    gpu_indices: list[int]
    reason: Reason


@event("job.preempted.v1", owner=OWNER, subject="job_id")
class JobPreempted(Event, frozen=True, kw_only=True):
    """The attempt is taken off its GPUs (drain, lost node) and goes back to the queue; no retry is used up."""

    job_id: str
    attempt: int
    reason: Reason


@event("upgrade.offered.v1", owner=OWNER, subject="job_id")
class UpgradeOffered(Event, frozen=True, kw_only=True):
    """None of the guest's GPUs has an owner or is kept for another gang: they are kept for it until quota answers.

    JobUpgraded or UpgradeDeclined is the answer. The offer stands until UpgradeWithdrawn: where it was declined for
    want of quota, JobUpgraded may come later.
    """

    job_id: str
    attempt: int
    tenant: str
    gpus: int
    """Of the whole gang; no part of one is ever upgraded."""
    since_s: float
    """Since when none of them has had an owner, in seconds since the epoch."""
    reason: Reason


@event("upgrade.withdrawn.v1", owner=OWNER, subject="job_id")
class UpgradeWithdrawn(Event, frozen=True, kw_only=True):
    """What UpgradeOffered has offered is over: an owner has come, or the GPUs are kept for a gang. The job is a guest.

    Where JobUpgraded was said meanwhile, it does not take effect, and the GPUs do not count against the tenant.
    """

    job_id: str
    attempt: int
    reason: Reason


@event("guest.expelled.v1", owner=OWNER, subject="job_id")
class GuestExpelled(Event, frozen=True, kw_only=True):
    """The guest has slowed an owner down and leaves its GPUs; it is placed elsewhere in its turn."""

    job_id: str
    attempt: int
    owner_job: str
    """The guaranteed job that it was beside."""
    slowdown_ratio: float
    """By how much the owner's mini-batches took longer, in parts of what they take alone."""
    reason: Reason


class Share(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One row of an allocation matrix X (Gavel, OSDI'20, section 3.1): a job alone, or two that share GPUs."""

    jobs: tuple[str, ...]
    time: dict[str, float]
    """{GPU type: fraction of time}, only what is greater than zero."""


@event("allocation.requested.v1", owner=OWNER, subject="policy")
class AllocationRequested(Event, frozen=True, kw_only=True):
    """A new allocation is needed; AllocationComputed answers, and only the answer to the latest question counts."""

    policy: str
    question: str
    """Fingerprint of what the answer depends on: jobs, GPUs, rates, options."""
    reason: Reason


@event("allocation.computed.v1", owner=OWNER, subject="policy")
class AllocationComputed(Event, frozen=True, kw_only=True):
    """What share of time each job is to have on each GPU type from now on.

    The numbers come out of a solver: the log is their only source. An audit solves again and compares the objective.
    """

    policy: str
    question: str
    """That of the AllocationRequested that it answers."""
    objective: float
    """Of the policy, as the problem's description defines it."""
    shares: list[Share]
    infeasible: list[str] = []
    """Jobs with a deadline that cannot be met."""
    jobs: int = 0
    """Jobs in the problem."""
    iterations: int = 0
    """Simplex iterations: the work that it took."""
    note: str = ""
    """Why the policy's own problem was not solved, if it was not."""

    def agrees_with(self, recorded: Event) -> bool:
        """Whether another solver run may have given `recorded`: the same question, the same optimum."""
        if not isinstance(recorded, AllocationComputed):
            return False
        tolerance = 1e-6 * max(1.0, abs(self.objective))
        asked, answered = (self.policy, self.question, self.jobs), (recorded.policy, recorded.question, recorded.jobs)
        return asked == answered and abs(self.objective - recorded.objective) <= tolerance


@event("throughput.estimated.v1", owner=OWNER, subject="configuration")
class ThroughputEstimated(Event, frozen=True, kw_only=True):
    """A configuration that was not measured beside others: to which measured one it is alike (Gavel, section 6).

    Where the two are asked for together with a third, both are taken to keep the same parts of their own speeds.
    """

    configuration: str
    """`MODEL|BATCH SIZE|GPUS`."""
    like: str
    """The nearest configuration of the operators' table."""
    distance: float
    """Root of the mean squared difference of their fingerprints, in parts of the own speed."""
    evidence: int
    """Co-locations of the configuration that were measured so far."""
    confidence: float
    """From 0 (a guess from its rates alone) to 1."""

    def agrees_with(self, recorded: Event) -> bool:
        """Whether another machine's arithmetic may have given `recorded`."""
        if not isinstance(recorded, ThroughputEstimated):
            return False
        asked, answered = (self.configuration, self.evidence), (recorded.configuration, recorded.evidence)
        return asked == answered and abs(self.distance - recorded.distance) <= 1e-3


class Lease(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job's place for one round."""

    job_id: str
    gpu_type: str
    gang: list[TaskPlacement]
    packed_with: list[str] = []


@event("round.started.v1", owner=OWNER, subject="policy")
class RoundStarted(Event, frozen=True, kw_only=True):
    """A round of an allocation policy begins (Gavel, section 5): which jobs go on where they are, which go where next.

    Jobs that are not named here give their GPUs up. A lease takes effect with the job's next JobPlaced, as soon as
    the tasks that must go have ended.
    """

    policy: str
    number: int
    ends_s: float
    renewed: list[str]
    """Jobs that go on where they are, uninterrupted."""
    leases: list[Lease]
    """Jobs that move or start."""
    packs: list[list[str]] = []
    """Pairs of jobs that share their GPUs in this round."""
    beyond: list[str] = []
    """Of both, those that use GPUs which no share claims; not charged to their shares."""


class ResumedJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where a suspended job goes on."""

    job_id: str
    gang: list[TaskPlacement]
    packed_with: list[str] = []
    """Jobs that may hold the same GPUs at the same time."""


@event("time_slice.started.v1", owner=OWNER, subject="server")
class TimeSliceStarted(Event, frozen=True, kw_only=True):
    """Jobs of these servers change places (Gandiva, section 4.2), take GPUs that became free, or give theirs up.

    A suspended job keeps its processes and gives its GPUs up; it holds GPUs again when a later event resumes it.
    """

    server: str
    """The first of the servers that take their turns together; nearly always the only one."""
    nodes: list[str]
    number: int
    """Counts the changes on these servers."""
    ends_s: float
    """No job has to make room before, unless for a higher priority."""
    running: list[str]
    """Jobs that go on where they are."""
    resumed: list[ResumedJob]
    suspended: list[str]
    started: list[str]
    """Jobs that run for the first time here; their JobPlaced follows."""
    reason: Reason


@event("job.packed.v1", owner=OWNER, subject="job_id")
class JobPacked(Event, frozen=True, kw_only=True):
    """Two jobs share their GPUs from the coming slice on, on trial (Gandiva, section 4.2).

    Introspection compares what they do together with what they did by turns, and says PackSucceeded or PackFailed.
    """

    job_id: str
    attempt: int
    with_job: str
    with_attempt: int
    trial_ends_s: float
    """The verdict comes until then: a pack without measurable progress fails."""
    reason: Reason


@event("job.unpacked.v1", owner=OWNER, subject="job_id")
class JobUnpacked(Event, frozen=True, kw_only=True):
    """The two do not share their GPUs any more: the pack failed, one of them left, or slices have ended."""

    job_id: str
    with_job: str
    reason: Reason


@event("destination.reserved.v1", owner=OWNER, subject="job_id")
class DestinationReserved(Event, frozen=True, kw_only=True):
    """A running or suspended job holds these GPUs, too: its next attempt is being started there to take over its state.

    JobMoved or MoveAbandoned ends this.
    """

    migration_id: str
    job_id: str
    from_attempt: int
    attempt: int
    """The number of the attempt that goes on there if the move succeeds; it is not used again if it does not."""
    gang: list[TaskPlacement]
    reason: Reason


@event("job.moved.v1", owner=OWNER, subject="job_id")
class JobMoved(Event, frozen=True, kw_only=True):
    """The attempt goes on where it was reserved GPUs, with the state of the earlier one, which is over.

    The tasks of the earlier attempt have been standing still since the state was taken, and never go on.
    """

    migration_id: str
    job_id: str
    from_attempt: int
    attempt: int
    gang: list[TaskPlacement]
    reason: Reason


@event("job.resized.v1", owner=OWNER, subject="job_id")
class JobResized(Event, frozen=True, kw_only=True):
    """The elastic job goes on with its state on more or fewer GPUs (Gandiva, section 4.1). JobMoved says on which."""

    job_id: str
    attempt: int
    """The one that goes on."""
    from_gpus: int
    gpus: int
    reason: Reason


@event("move.abandoned.v1", owner=OWNER, subject="job_id")
class MoveAbandoned(Event, frozen=True, kw_only=True):
    """The job stays where it is, or ends there; GPUs that were reserved for it elsewhere are free."""

    migration_id: str
    job_id: str
    from_attempt: int
    reason: Reason


class Overlap(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An older attempt of a job that runs, or may run, beside a newer one: its node was thought lost."""

    attempt: int
    node_id: str
    seen: bool
    """The node has come back with it; otherwise its end is at an unknown time, or has not been told."""

    @property
    def words(self) -> str:
        """A clause about the newer attempt's failure."""
        does = "has run" if self.seen else "may have run"
        return f"attempt {self.attempt} {does} beside it on node {self.node_id}, which was thought lost"


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
    """The failing task's `JobExited.outcome`, or `start_timed_out`, or `stalled`, `diverged` or `idle`: its tenant has
    such jobs stopped."""
    stderr_tail: str = ""
    last_attempt: int = 0
    """The highest number given to an attempt of the job so far, where it is higher than this one's."""
    trial: bool = False
    """The attempt was the job's trial."""
    memory_signs: bool | None = None
    """As in the failing task's JobExited."""
    overlap: Overlap | None = None
    """An older attempt that has run, or may have, at the same time: then the failure says nothing of the job."""
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
    """Address of the rank-0 node; None for a gang on one node; its agent finds a free port itself."""
    rendezvous_port: int | None
    time_limit_s: float | None
    packed_with: list[str] = []
    """Jobs with tasks that may use the same GPUs at the same time."""
    restores: bool = False
    """Start and wait for the state of an earlier attempt (RestoreTask), then stand still until ResumeTask."""
    virtual_ranks: int | None = None
    """Among how many an elastic job is divided for its whole life; None: it is not elastic."""
    output_dir: str | None = None
    """Folder below the working directory that is kept beyond the job's end."""
    cpus: int | None = None
    """CPUs for each of its GPUs here that no other task may use; None: it shares those that no task has for itself."""
    memory_bytes: int | None = None
    """Memory of the host for each of its GPUs here: a task with more ends; None: no limit."""
    setup: str = ""
    """Shell command that prepares the environment."""
    python: str = ""
    venv: str = ""
    conda: str = ""
    image: str = ""
    mounts: dict[str, str] = {}
    """{name of a data set: its path in the image}; empty path: that of the node."""
    role: str = "owner"
    """As in JobPlaced."""
    memory_limit_bytes: int | None = None
    """As in SetMemoryLimit."""
    compute_share_ratio: float | None = None
    """As in SetComputeShare."""
    trial_steps: int | None = None
    """The attempt is the job's trial: it ends itself after so many mini-batches; None: it is none."""
    trial_schema: str = ""
    """Of a trial: what `trial_data` has to look like, as in `JobSpec.data_schema`; empty: nothing is checked."""
    trial_data: list[str] = []
    """Of a trial: files of the node, paths and patterns, that are compared with it before the script is started."""
    when_converged: str = ""
    """Not empty: the losses of its epochs are wanted, and a Job keeps the checkpoint of the best one."""
    loss_metric: str = "loss"
    loss_line: str = ""
    """Which lines of its output tell the loss; empty: its reports, else the harness's epochs."""


class StateSource(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where the states of some ranks are."""

    node_id: str
    address: str
    port: int
    first_rank: int
    """The states of the ranks from here to the next source's first."""


@event("node.check.v1", owner=OWNER, subject="node_id", topic=Topic.ORDERS)
class CheckGpus(Event, frozen=True, kw_only=True):
    """Try out these GPUs, for a short time; NodeTested answers."""

    node_id: str
    gpu_indices: list[int]
    reason: Reason


@event("task.restore.v1", owner=OWNER, subject="node_id", topic=Topic.ORDERS)
class RestoreTask(Event, frozen=True, kw_only=True):
    """Fetch the states of the ranks of `from_attempt`, which stand still, and load them."""

    node_id: str
    job_id: str
    attempt: int
    from_attempt: int
    sources: list[StateSource]
    """Ascending by first rank."""
    ranks: int | None = None
    """Of the earlier attempt. Where it had fewer than this one, several take the state of the same: rank modulo ranks.
    None: as many as this one."""


@event("task.stop.v1", owner=OWNER, subject="node_id", topic=Topic.ORDERS)
class StopTask(Event, frozen=True, kw_only=True):
    """End the task: politely (SIGTERM to its process group), after `grace_s` by force; at once when that is 0."""

    node_id: str
    job_id: str
    attempt: int
    grace_s: float
    reason: Reason


@event("task.suspend.v1", owner=OWNER, subject="node_id", topic=Topic.ORDERS)
class SuspendTask(Event, frozen=True, kw_only=True):
    """Stop the task's processes at their next mini-batch boundary, their memory off the GPU; they keep their state."""

    node_id: str
    job_id: str
    attempt: int
    pause: bool = False
    """For as long as a user likes, and not for a turn: time to see what a task is that has just begun."""


@event("task.resume.v1", owner=OWNER, subject="node_id", topic=Topic.ORDERS)
class ResumeTask(Event, frozen=True, kw_only=True):
    """Let a suspended task go on as soon as its GPUs are free."""

    node_id: str
    job_id: str
    attempt: int
    gpu_indices: list[int] = []
    """On these GPUs of the node; empty: where it was."""
    packed_with: list[str] = []
    """Jobs with tasks that may use the same GPUs at the same time."""
    role: str = "owner"
    """As in JobPlaced."""


@event("task.set_class.v1", owner=OWNER, subject="node_id", topic=Topic.ORDERS)
class SetClass(Event, frozen=True, kw_only=True):
    """The running task is an owner or a guest from now on; it goes on without interruption."""

    node_id: str
    job_id: str
    attempt: int
    role: str
    """As in JobPlaced."""


@event("task.set_memory_limit.v1", owner=OWNER, subject="node_id", topic=Topic.ORDERS)
class SetMemoryLimit(Event, frozen=True, kw_only=True):
    """An upper bound for the limit that the node's coordination gives the task (AntMan, section 3.1.1)."""

    node_id: str
    job_id: str
    attempt: int
    limit_bytes: int | None
    """Of each of its GPUs; None: no bound."""


@event("task.set_compute_share.v1", owner=OWNER, subject="node_id", topic=Topic.ORDERS)
class SetComputeShare(Event, frozen=True, kw_only=True):
    """An upper bound for the share of the GPU's time that the node's coordination gives the task (section 3.1.2)."""

    node_id: str
    job_id: str
    attempt: int
    share_ratio: float | None
    """From 0 to 1; None: no bound."""
