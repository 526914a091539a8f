"""Facts from the nodes. Emitted by torch_agent, the only actor that touches hardware."""

from __future__ import annotations

import msgspec

from libs.contracts.base import Event, Topic, event
from libs.contracts.cluster import GpuInfo, PortRange, TaskRef
from libs.contracts.reasons import Reason

OWNER = "torch_agent"
SOURCE = "agent/"
"""Before a node's id: the source of the records of its agent, and the name of the session that appends them."""


def source_of(node_id: str) -> str:
    """The source of the records of a node's agent."""
    return f"{SOURCE}{node_id}"


@event("node.joined.v1", owner=OWNER, subject="node_id")
class NodeJoined(Event, frozen=True, kw_only=True):
    """An agent is up. Repeated with a higher incarnation at each start of the agent."""

    node_id: str
    incarnation: int
    """1 at the first start, one more at each later start."""
    address: str
    """Where other nodes reach it (rendezvous)."""
    rack: str
    """RDMA domain."""
    gpus: list[GpuInfo]
    tasks: list[TaskRef]
    """Tasks that the agent found running or ended-and-unreported when it started; all others of this node are gone."""
    rendezvous_ports: PortRange
    virtual: bool
    agent_version: str = ""
    remaps: bool = False
    """Whether a suspended task may be resumed on other GPUs of the node."""
    state_port: int = 0
    """Where other agents fetch the states of tasks that move; 0: nowhere."""
    files_port: int = 0
    """Where the gateway fetches files of jobs, with the cell's key; 0: nowhere."""
    state_dir: str = ""
    """Under which the agent has the folders of jobs (`libs/node/serving.py`); empty on logs older than this field."""
    cpus: int = 0
    """CPUs that jobs may use; 0: not known, and so none can be promised."""
    memory_bytes: int = 0
    """Memory of the host that jobs may use; 0: likewise."""
    bounds_by: str = ""
    """How tasks are kept to their CPUs and memory: `affinity` (the agent pins and watches them; between two looks they
    have what they take), `simulation`; empty: not at all. After `affinity` may stand `+cgroup`: the kernel keeps each
    task's processes together, and kills them as one; then `+memory` (it bounds their memory, shared memory and its
    files with it) and `+pids` (their number). What is not named is not bounded by the kernel."""
    features: list[str] = []
    """What jobs may need of a node beside GPUs, and the pool that it is set apart for (`features.py`), ascending."""
    image_runner: str = ""
    """The program that runs container images: podman, apptainer or enroot; empty: there is none."""
    scales_memory: str = ""
    """What of a running task's GPU memory can be moved to the host: `all`, `activations`; empty: nothing."""
    scales_compute: bool = False
    """Whether a running task's share of the GPU's time can be changed: whether the node takes guests."""
    spill_bytes: int = 0
    """Memory of the host for what guests have to take off the GPUs."""
    gpu_cpus: list[int] = []
    """Of virtual GPUs, in their order: number of the CPU on which what trains there runs, owners and guests alike. One
    may stand for several; empty: they have none, and share time as the operating system likes."""


@event("node.leaving.v1", owner=OWNER, subject="node_id")
class NodeLeaving(Event, frozen=True, kw_only=True):
    """The agent is being stopped and has told its tasks to end, each to save what it can; it starts no other.

    What ends from now on has not failed. NodeLeft follows when the tasks have ended, or the agent's patience has.
    """

    node_id: str
    incarnation: int
    note: str = ""


@event("node.errors_logged.v1", owner=OWNER, subject="node_id")
class NodeErrorsLogged(Event, frozen=True, kw_only=True):
    """The node's agent goes on, and has logged errors since it said so last; at most once a minute."""

    node_id: str
    incarnation: int
    errors: int
    """Since this start of the agent."""
    last: str
    """The last of them, at most 300 characters."""


@event("node.left.v1", owner=OWNER, subject="node_id")
class NodeLeft(Event, frozen=True, kw_only=True):
    """The agent has shut down in order; no task of the cell runs on the node any more."""

    node_id: str
    incarnation: int
    note: str = ""


@event("gpu.unhealthy.v1", owner=OWNER, subject="node_id")
class GpuUnhealthy(Event, frozen=True, kw_only=True):
    """The GPU must not get new work: uncorrected ECC errors, fallen off the bus, or no room on the node's disk for what
    a task's end takes (`note` begins with `DiskFull`). Tasks on it go on."""

    node_id: str
    index: int
    note: str


@event("gpu.recovered.v1", owner=OWNER, subject="node_id")
class GpuRecovered(Event, frozen=True, kw_only=True):
    """The GPU may be used again."""

    node_id: str
    index: int


@event("node.tested.v1", owner=OWNER, subject="node_id")
class NodeTested(Event, frozen=True, kw_only=True):
    """The agent has tried out GPUs of its node, because placement has asked for it (CheckGpus)."""

    node_id: str
    gpu_indices: list[int]
    """That were tried out, ascending."""
    failed: list[int]
    """Those of them that did not do what they should."""
    note: str = ""
    """What was found of these; empty where all are well."""
    took_s: float = 0.0


@event("job.setting_up.v1", owner=OWNER, subject="job_id")
class JobSettingUp(Event, frozen=True, kw_only=True):
    """The node prepares the environment of the attempt's task, which starts when that is done.

    Not said where the node has kept the environment. From now on the attempt has `limit_s` to begin.
    """

    job_id: str
    attempt: int
    node_id: str
    limit_s: float
    reason: Reason


@event("job.started.v1", owner=OWNER, subject="job_id")
class JobStarted(Event, frozen=True, kw_only=True):
    """The node's task of the attempt has been started."""

    job_id: str
    attempt: int
    node_id: str
    pid: int
    """Of the process group's leader."""


@event("job.suspended.v1", owner=OWNER, subject="job_id")
class JobSuspended(Event, frozen=True, kw_only=True):
    """All processes of the node's task are stopped and keep their state; the GPU is free for others if `parked`."""

    job_id: str
    attempt: int
    node_id: str
    parked: bool = False
    """Nothing of it is on the GPU: its memory was brought to the host, or it has none there. Else it was stopped where
    it was, and its memory stays."""
    delay_s: float = 0.0
    """From the order to the boundary of the slowest process (Gandiva charges it to the job's slice)."""
    took_s: float = 0.0
    """Then, until the memory was off the GPU."""
    parked_bytes: int = 0
    left_bytes: int = 0
    """Still on the GPU, context aside."""
    minibatches_total: int = 0
    """Done until then, of the slowest rank."""
    note: str = ""
    """Why the memory was not brought to the host, as far as the agent can tell; empty where it was."""
    untrained: bool = False
    """It was stopped before its first mini-batch, soon after its start: if it begins anew, it has lost nothing."""


@event("job.resumed.v1", owner=OWNER, subject="job_id")
class JobResumed(Event, frozen=True, kw_only=True):
    """The node's task goes on."""

    job_id: str
    attempt: int
    node_id: str
    gpu_indices: list[int] = []
    """Where; empty on logs older than this field: where it was."""
    delay_s: float = 0.0
    """From the moment its GPUs were free to its next line."""
    took_s: float = 0.0
    """Of that, until its memory was back."""


@event("job.movable.v1", owner=OWNER, subject="job_id")
class JobMovable(Event, frozen=True, kw_only=True):
    """The node's task can hand its state over to other processes: it may move to another node without a restart."""

    job_id: str
    attempt: int
    node_id: str
    resizable: bool = False
    """To more or fewer processes, too."""


@event("job.ranks_apart.v1", owner=OWNER, subject="job_id")
class JobRanksApart(Event, frozen=True, kw_only=True):
    """The job's processes have done their first mini-batches and have formed no process group (torch.distributed).

    Each of them trains the whole job by itself. Said once per task of an attempt; the attempt goes on.
    """

    job_id: str
    attempt: int
    node_id: str
    processes: int
    """Of the whole job."""
    reason: Reason


@event("job.ready.v1", owner=OWNER, subject="job_id")
class JobReady(Event, frozen=True, kw_only=True):
    """The node's task is there to take over a state: imports are done, the model is built, and it waits."""

    job_id: str
    attempt: int
    node_id: str


@event("job.restored.v1", owner=OWNER, subject="job_id")
class JobRestored(Event, frozen=True, kw_only=True):
    """The node's task has taken over the state of an earlier attempt, and stands still."""

    job_id: str
    attempt: int
    node_id: str
    state_bytes: int = 0
    """Fetched from other nodes, over its processes."""
    fetch_s: float = 0.0
    """To have it written at the source, sent and checked."""
    load_s: float = 0.0
    """To load it, of the slowest process."""


@event("metrics.reported.v1", owner=OWNER, subject="job_id")
class MetricsReported(Event, frozen=True, kw_only=True):
    """The job's script says how good it is.

    Of several reports within a second (or within a hundredth of the attempt's time so far) the last one alone is
    passed on, and the last one of all in any case.
    """

    job_id: str
    attempt: int
    node_id: str
    step: float
    """As the script counts: epochs, mini-batches; grows within an attempt."""
    values: dict[str, float]
    """{name: finite number}, at most 16."""


@event("memory_limit.changed.v1", owner=OWNER, subject="job_id")
class MemoryLimitChanged(Event, frozen=True, kw_only=True):
    """A task's processes have applied another limit to their memory on the GPU; what does not fit is on the host.

    At most one per job and 10 s: the latest change of that time.
    """

    job_id: str
    attempt: int
    node_id: str
    index: int
    """The GPU."""
    from_bytes: int | None
    """None: there was no limit. So is `to_bytes`."""
    to_bytes: int | None
    device_bytes: int
    """Then on the GPU, cached blocks included."""
    cached_bytes: int
    host_bytes: int
    """Then on the host."""
    took_s: float
    """From the change until it was applied, at a mini-batch boundary."""
    reason: Reason


@event("compute_share.changed.v1", owner=OWNER, subject="job_id")
class ComputeShareChanged(Event, frozen=True, kw_only=True):
    """A guest may use another share of its GPU's time, beside the gaps that the owner leaves.

    At most one per job and 10 s: the latest change of that time.
    """

    job_id: str
    attempt: int
    node_id: str
    index: int
    from_ratio: float
    to_ratio: float
    reason: Reason


@event("memory.burst.v1", owner=OWNER, subject="job_id")
class MemoryBurst(Event, frozen=True, kw_only=True):
    """An owner needed more memory than its limit for a mini-batch: the rest lay on the host until guests had shrunk."""

    job_id: str
    attempt: int
    node_id: str
    index: int
    host_bytes: int
    """The most that lay on the host."""
    from_jobs: list[str]
    """Guests that gave their memory up for it, ascending."""
    minibatches: int
    """Until a whole mini-batch had everything on the GPU."""
    reason: Reason


@event("memory.traded.v1", owner=OWNER, subject="job_id")
class MemoryTraded(Event, frozen=True, kw_only=True):
    """Memory of a GPU without an owner was moved from one guest to another, on trial (AntMan, section 3.3)."""

    job_id: str
    """The guest that had more."""
    from_job: str
    node_id: str
    index: int
    moved_bytes: int
    rates_before: float
    """Sum of the guests' rates, each as a part of its best."""
    rates_after: float
    kept: bool
    """Whether they keep what they have now; else it was moved back."""
    reason: Reason


@event("guest.misbehaved.v1", owner=OWNER, subject="job_id")
class GuestMisbehaved(Event, frozen=True, kw_only=True):
    """The guest ran while its gate was closed, or kept more memory than its limit: the agent stops it from outside."""

    job_id: str
    attempt: int
    node_id: str
    index: int
    reason: Reason


class DataViolation(msgspec.Struct, frozen=True, kw_only=True):
    """One place where data is not as its schema says."""

    file: str
    row: int | None
    """Counted from 1; of a WebDataset shard, the sample. None: it is about the whole file, or the whole data set."""
    column: str
    """Empty where it is about the row as such."""
    value: str
    """What was seen, at most 100 characters."""
    expected: str


@event("data.checked.v1", owner=OWNER, subject="job_id")
class DataChecked(Event, frozen=True, kw_only=True):
    """The data that the job names has been compared with its schema, before its script runs on it."""

    job_id: str
    attempt: int
    node_id: str
    data: list[str]
    """Paths and patterns, as the job names them."""
    files: int
    """That were looked at."""
    rows: int
    complete: bool
    """All files and rows were looked at; else the check ended with the last violation that it may name, or with what
    the footers of Parquet files say, before values were read."""
    violations: list[DataViolation]
    """The first ones, at most 20, in order of files and rows."""


@event("job.exited.v1", owner=OWNER, subject="job_id")
class JobExited(Event, frozen=True, kw_only=True):
    """The node's task has ended: none of its processes is left."""

    job_id: str
    attempt: int
    node_id: str
    exit_code: int | None
    """Of the first rank that ended badly, else 0; None when a signal ended it or it never ran."""
    signal: int | None
    outcome: str
    """`exited`, `signalled`, `stopped` (by StopTask), `time_limit`, `launch_failed` (as it was submitted it cannot be
    started), `setup_failed` (the command that prepares its environment has), `node_failed` (this node could not start
    it), `restore_failed` (it got no state to go on with), `host_memory_exceeded` (it had more of the host's memory than
    it asked for), `lost` (its record is gone) or `interrupted` (ended from outside while its agent was away: with its
    machine, or by a service manager; or fenced from its job's checkpoints by a newer attempt; `stderr_tail` says
    which)."""
    rank: int | None = None
    """Global rank of the process that ended badly."""
    stderr_tail: str = ""
    """The last lines of that rank's stderr, at most 4 KiB; of a task that has not started, what it was waiting for."""
    ran_s: float = 0.0
    minibatches_total: int = 0
    memory_signs: bool | None = None
    """Of a process that ended badly: whether the kernel has killed one for memory then; None: nobody has looked."""


@event("minibatch.profiled.v1", owner=OWNER, subject="job_id", topic=Topic.TELEMETRY)
class MinibatchProfiled(Event, frozen=True, kw_only=True):
    """One rank's mini-batches since its last record; at most once a second per rank, and once at its end."""

    job_id: str
    attempt: int
    node_id: str
    rank: int
    world_size: int
    minibatches: int
    """Done since the last record."""
    minibatches_total: int
    """Done since the attempt started."""
    interval_s: float
    """Time since the last record."""
    minibatch_mean_s: float
    """Mean time from one mini-batch boundary to the next."""
    loss: float | None
    memory_peak_bytes: int
    memory_min_bytes: int
    gpu_utilisation_ratio: float | None = None
    """Of the rank's GPU, with everything that runs there; None where nothing is known."""
    loss_nonfinite: str = ""
    """`nan`, `inf` or `-inf` where the newest loss is no finite number; `loss` is None then."""


class RankSample(msgspec.Struct, frozen=True, kw_only=True):
    """How one rank gets on, by the node's own clock; only time in which its task runs counts."""

    rank: int
    minibatches_total: int
    quiet_s: float
    """Since its last mini-batch, or other sign that it goes on (a batch drawn, a backward pass, a file saved)."""
    busy_s: float = 0.0
    """Of that, the time in which its task's processes or GPUs were busy, or may have been."""
    longest_quiet_s: float
    """The longest such time after which it went on."""
    p99_s: float
    """Seconds that 99 of 100 of its mini-batches keep to; 0: not known."""
    nonfinite: int = 0
    """Losses in a row, up to the newest one, that are NaN or infinite."""
    loss_nonfinite: str = ""
    """The newest of them: `nan`, `inf` or `-inf`."""


@event("task.sampled.v1", owner=OWNER, subject="job_id", topic=Topic.TELEMETRY)
class TaskSampled(Event, frozen=True, kw_only=True):
    """How the node's task of an attempt gets on; with each heartbeat while it has not ended."""

    job_id: str
    attempt: int
    node_id: str
    running: bool
    """It is neither suspended nor being stopped, nor about to be."""
    ranks: list[RankSample]
    """Of its living processes that train, ascending."""
    computing: bool | None
    """Whether its processes or its GPUs were busy since the sample before; None: not known yet."""
    idle_s: float
    """How long its GPUs have been idle and no mini-batch was done, while it ran."""


@event("gpu.sampled.v1", owner=OWNER, subject="node_id", topic=Topic.TELEMETRY)
class GpuSampled(Event, frozen=True, kw_only=True):
    """What NVML (or the operating system, for a virtual GPU) says of one GPU."""

    node_id: str
    index: int
    utilisation_ratio: float
    memory_used_bytes: int
    temperature_c: float | None = None


class AllowanceChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a task may have of a GPU from one moment on."""

    time_s: float
    """Seconds since the epoch."""
    job_id: str
    attempt: int
    memory_limit_bytes: int | None
    """Of its process on this GPU, from its next mini-batch boundary on; None: it has no limit."""
    compute_share_ratio: float
    """Of the GPU's time beside the gaps of the owner, at once."""


@event("gpu.coordinated.v1", owner=OWNER, subject="node_id", topic=Topic.TELEMETRY)
class GpuCoordinated(Event, frozen=True, kw_only=True):
    """Each change of what tasks may have of a GPU that they share; with each heartbeat, those since the one before.

    Control has no more than one MemoryLimitChanged and one ComputeShareChanged per job and ten seconds of them.
    """

    node_id: str
    index: int
    changes: list[AllowanceChange]
    """Oldest first; the newest 500."""
    left_out: int = 0
    """Older ones that did not fit."""


class HostSample(msgspec.Struct, frozen=True, kw_only=True):
    """The host of a node, as its operating system has it, with everything that runs there."""

    cpus: int
    cpu_utilisation_ratio: float
    """Mean over the CPUs since the last sample."""
    memory_bytes: int
    memory_used_bytes: int
    """What other processes cannot have without swapping."""


@event("node.heartbeat.v1", owner=OWNER, subject="node_id", topic=Topic.TELEMETRY)
class NodeHeartbeat(Event, frozen=True, kw_only=True):
    """The agent is alive. Sent every few seconds."""

    node_id: str
    incarnation: int
    running_tasks: int
    host: HostSample | None = None
    """None where it is not known, and on records older than this field."""
    lost_after_s: float | None = None
    """Silence after which its tasks have stopped for certain, by the terms of its lease: the node is not lost before.
    None: its agent has no lease."""


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of output."""

    time_s: float
    stream: str
    """`stdout` or `stderr`."""
    rank: int
    text: str


@event("job.logged.v1", owner=OWNER, subject="job_id", topic=Topic.LOGS)
class JobLogged(Event, frozen=True, kw_only=True):
    """Lines that the node's task wrote, in order per rank and stream."""

    job_id: str
    attempt: int
    node_id: str
    lines: list[LogLine]
