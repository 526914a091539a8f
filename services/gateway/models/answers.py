"""What the gateway answers. Times are seconds since the epoch; their names say so."""

from __future__ import annotations

from typing import Any

import msgspec

from libs.contracts.groups import Dependency
from libs.contracts.read_models import AttemptRow, JobState, NodeState
from libs.contracts.reasons import Number


class Answer(msgspec.Struct, kw_only=True):
    """The base of all answers."""


class Task(Answer):
    """One node's part of a gang."""

    node_id: str
    gpu_indices: list[int]
    first_rank: int


class Job(Answer):
    """A job, as lists show it."""

    id: str
    name: str
    tenant: str
    user: str
    job_class: str = msgspec.field(name="class")
    priority: int
    gpus: int
    """As many as it asks for."""
    widths: list[int]
    """How many it may have, ascending: several where it is elastic."""
    max_gpus: int | None
    """Most that it may have now, where that was changed since it was submitted."""
    gpu_types: list[str]
    labels: dict[str, str]
    state: JobState
    status: str
    """`passed`, `killed` or `unsuccessful`, in the Philly study's words; empty while it has not ended."""
    reason: str
    """CamelCase token: why it is in this state."""
    message: str
    numbers: dict[str, Number]
    queue_position: int | None
    """Place among the jobs that wait for GPUs, from 1; null for one that does not, and under policies of shares."""
    attempt: int
    where: str
    """`n1:0-3, n2:0`: where it runs or last ran."""
    placement: list[Task]
    held: bool
    submitted_s: float
    queued_s: float
    placed_s: float | None
    started_s: float | None
    first_started_s: float | None
    finished_s: float | None
    not_before_s: float | None
    exit_code: int | None
    signal: int | None
    failure: str | None
    failure_category: str | None
    deciding_line: str | None
    role: str
    """What it is on its GPUs, or was last: `owner` or `guest`; empty before the first."""
    failed_attempts: int
    """Whatever they failed of, and whether or not the job was tried again."""
    retries_used: int
    """Of `max_retries`."""
    max_retries: int
    preemptions: int
    gpu_s: float
    """GPU time in GPU seconds, without the stretch that lasts."""
    minibatches: int
    rate_per_s: float | None
    """Mini-batches per second."""
    loss: float | None
    loss_nonfinite: str
    """`nan`, `inf` or `-inf` where the newest loss is no finite number; `loss` is null then."""
    measured_until_s: float | None
    """Up to when mini-batches of the latest attempt were seen: a rate is that of this time."""
    memory_peak_bytes: int | None
    best_loss: float | None
    """When it was found to have converged: the lowest loss. Null where that was not found; so are the others."""
    best_epoch: float | None
    converged_epoch: float | None
    """The first epoch with a loss as good as the lowest."""
    gpu_s_since_converged: float | None
    """GPU seconds from then until that was found."""
    group_id: str | None
    """Its array or DAG."""
    group_index: int | None
    """Its index in the array, or its place in the DAG from 0."""
    after: list[Dependency]
    """What had to end before it."""
    notices: dict[str, str]
    """{CamelCase token: sentence} of what is wrong with its latest attempt: JobStalled, GpuIdle, LossDiverged."""
    version: int
    """Offset of its last event; also its ETag."""


class Group(Answer):
    """An array or a DAG, and how its jobs are."""

    id: str
    kind: str
    """`array` or `dag`."""
    name: str
    tenant: str
    user: str
    jobs: int
    at_once: int | None
    """Most jobs of an array that are let through together; null: all."""
    state: JobState
    """QUEUED until a job has begun, RUNNING until all have ended, then the worst end of a job."""
    counts: dict[str, int]
    """{state: jobs} of its jobs that have arrived."""
    submitted_s: float


class GroupList(Answer):
    """One page of arrays and DAGs."""

    items: list[Group]
    next_cursor: str | None


class JobDetail(Job):
    """A job with everything that is known of it."""

    spec: dict[str, Any]
    submitted_by: str
    rejected: list[dict[str, Any]]
    """Alternatives that the last decision did not take."""
    reason_source: str
    reason_offset: int
    reserved_nodes: list[str]
    attempts: list[AttemptRow]
    folder: str | None
    """The working directory of the latest attempt, on the node of rank 0."""
    output_folder: str | None
    """What is kept of the job there beyond its end."""


class JobList(Answer):
    """One page of jobs."""

    items: list[dict[str, Any]]
    """Jobs (`Job`), or of each the asked-for fields; with `grouped`, each has a `group` (`Group`) as well, or null."""
    next_cursor: str | None


class Use(Answer):
    """What one tenant, user, job or GPU type has used within a stretch of time."""

    key: str
    """The tenant, the user, the job's id, or the GPU type."""
    name: str
    """Of a job its name; else empty."""
    jobs: int
    """Jobs that have held GPUs or waited in the stretch."""
    gpu_s: float
    """GPUs times how long they were held, in GPU seconds. A GPU that two jobs share counts for both."""
    by_state: dict[str, float]
    """{state of a job now: its part of `gpu_s`}: what has come of the GPU time."""
    wait_s: float | None
    """Time from submission until a job first ran, summed over jobs; null by GPU type: a job that waits has none."""


class UseList(Answer):
    """What was used within a stretch of time, the most first."""

    items: list[Use]
    since_s: float
    until_s: float


class FailureGroup(Answer):
    """Failed attempts with something in common: a row of Table 6 of the Philly study (ATC'19), for this cell."""

    key: str
    """The reason, cause, user, tenant, node or input; empty: not judged yet, or not known."""
    trials: int
    """Attempts that failed."""
    jobs: int
    users: int
    p50_s: float
    """Time to failure, from the placement of an attempt to its end; the 50th percentile."""
    p90_s: float
    p95_s: float
    gpus_1: int
    """Of the attempts, those with 1 GPU."""
    gpus_2_to_4: int
    gpus_above_4: int
    gpu_s: float
    """GPU time of the attempts, in GPU seconds."""


class FailureList(Answer):
    """What has failed within a stretch of time, the most attempts first."""

    items: list[FailureGroup]
    trials: int
    """Attempts that failed; one with several inputs is in several groups."""
    gpu_s: float
    since_s: float
    until_s: float


class Submitted(Answer):
    """A job, an array or a DAG that was accepted. The same for a repeated request."""

    id: str
    name: str
    tenant: str
    gpus: int
    """Of each job; of a DAG: of its largest."""
    state: JobState
    offset: int
    """Of its JobArrived, ArrayArrived or DagArrived on the control topic."""
    url: str
    jobs: int = 1
    members: dict[str, str] = {}
    """Of a DAG: {name: id of the job}."""
    warnings: list[str] = []
    """What is known at the time of the answer and speaks against its success: causes of which jobs of its user failed
    again and again, inputs in quarantine. Not said of DAGs."""


class Requested(Answer):
    """A request about a job, a node, a tenant or a setting that is on the log now."""

    id: str
    """What it is about."""
    event: str | None
    """Type of the event; null when nothing had to be asked any more."""
    offset: int | None


class LogClock(Answer):
    """The log's clock, and the services that go by it."""

    ahead_s: float
    """By how much their newest decisions are dated ahead of it: above 0 on a log on which a node's clock was taken for
    the log's, by a version before the log had its own."""


class DryRun(Answer):
    """What would become of a job; nothing was appended."""

    verdict: str
    """`starts`, `waits`, `rejected`, or `unknown` while no node has joined."""
    reason: str
    message: str
    numbers: dict[str, Number]
    where: dict[str, int]
    """{node: GPUs} it would probably get."""
    spec: dict[str, Any]
    expected: dict[str, Any] | None = None
    """When it would start, as in a Forecast; null: not asked for, not known now, or it would be rejected."""
    errors: dict[str, Any] | None = None
    """Of such expectations so far, as in a Forecast; null where `expected` is."""


class Check(Answer):
    """What one service has said of the job last."""

    check: str
    verdict: str
    code: str
    message: str
    numbers: dict[str, Any]
    rejected: list[dict[str, Any]]
    event: str
    offset: int | None
    time_s: float | None


class Why(Answer):
    """Why a job is where it is, from the reasons on the log."""

    job_id: str
    name: str
    state: JobState
    since_s: float
    attempt: int
    reason: str
    message: str
    numbers: dict[str, Number]
    rejected: list[dict[str, Any]]
    decided_by: str
    offset: int
    where: str
    failure: str | None
    deciding_line: str | None
    queue_position: int | None
    checks: list[Check]
    before: list[dict[str, Any]]
    """Earlier reasons, oldest first: `code, message, by, offset, since_s`."""
    waits_s: dict[str, float]
    """{cause: seconds that it has waited for it so far}, without GPUs; what it waited for behind another job is there
    under that one's cause."""
    waits_for: str
    """The cause of its wait now, or that of the job that it is behind; empty: it does not wait."""
    behind: str
    """The job that it is behind; empty: none."""


class Forecast(Answer):
    """What would start a job that waits at the next decision, and when it is expected to start."""

    job_id: str
    now_s: float
    """When it was found."""
    is_complete: bool
    """False: there was no time to try everything."""
    options: list[dict[str, Any]]
    """`message, changes`; each alone starts the job, the smallest first. A change has `kind, message, numbers`."""
    expected: dict[str, Any]
    """`in_s, at_s` (null: not as long as nothing changes), `how`, `rests_on`, `basis`, `arrivals`, `steps`."""
    errors: dict[str, Any]
    """Of such expectations so far, of those that rested on the same `basis` where there are any: `expectations` of
    which the start has come, `median_ratio` and `p90_ratio` of the wait."""


class Story(Answer):
    """The events about something, in sentences, each under its cause."""

    subject: str
    told: list[dict[str, Any]]
    """`place, offset, time_s, source, event, id, text, depth, cause_offset, aside`."""
    lines: list[str]
    """The same, ready to print."""


class Point(Answer):
    """One measured window."""

    attempt: int
    time_s: float
    """End of the window."""
    minibatches: int
    rate_per_s: float
    loss: float | None
    memory_peak_bytes: int
    memory_min_bytes: int


class ReportedPoint(Answer):
    """One number that the job's script has reported."""

    attempt: int
    step: float
    value: float
    time_s: float


class ProcessStacks(Answer):
    """What one process of a job does."""

    node_id: str
    rank: int | None
    """Null for a process that has not trained yet."""
    pid: int
    text: str
    """Of each thread, the innermost call first; empty when there are none."""
    note: str
    """Why there are none."""


class Stacks(Answer):
    """What the processes of a running job do."""

    job_id: str
    attempt: int
    items: list[ProcessStacks]
    """By node and rank."""
    missing: list[str]
    """Why there is nothing from a node."""


class JobMetrics(Answer):
    """A job's curves."""

    job_id: str
    points: list[Point]
    reported: dict[str, list[ReportedPoint]]
    """{metric: what the script has reported of it, oldest first}"""


class Node(Answer):
    """A node and what it has free."""

    id: str
    state: NodeState
    gpus: int
    free: int
    unhealthy: int
    gpu_types: list[str]
    jobs: list[str]
    address: str
    rack: str
    cpus: int
    """That jobs may be promised."""
    cpus_promised: int
    """That jobs are promised now; the others are shared by the jobs that ask for none."""
    memory_bytes: int
    """Of the host, that jobs may be promised."""
    memory_promised_bytes: int
    bounds_by: str
    """How tasks are kept to what they asked for: `affinity` (pinned and watched by the agent), with `+cgroup`,
    `+memory`, `+pids` for what the kernel bounds; `simulation`; empty: not at all."""
    virtual: bool
    incarnation: int
    agent_version: str
    features: list[str]
    """What jobs may need of it beside GPUs: `images`, `data:NAME`; `pool:NAME` where it is set apart."""
    pool: str
    """What it is set apart for: `trial`; empty: it is for all jobs but trials, which come only where no pool takes
    them."""
    image_runner: str
    """The program that runs container images there; empty: there is none."""
    note: str
    errors: int
    """That its agent has logged since its start."""
    last_error: str
    clock_skew_s: float
    """By how much its clock is ahead of the log's; below 0: behind; 0: right within 2 s. It decides nothing."""
    cpu_utilisation_ratio: float | None
    """Of the host, over the last minute that was measured; null: it was not yet. So are the others."""
    memory_used_bytes: int | None
    host_memory_bytes: int | None
    """All memory of the host; `memory_bytes` of it is for jobs."""
    measured_until_s: float | None
    joined_s: float | None
    version: int


class NodeList(Answer):
    """All nodes."""

    items: list[Node]


class Gpu(Answer):
    """One GPU and the jobs that hold it."""

    id: str
    node_id: str
    index: int
    gpu_type: str
    memory_bytes: int
    uuid: str
    state: str
    """`free`, `busy`, `unhealthy`, `draining` (free, on a draining node) or `away` (its node, or it, is gone)."""
    job_id: str | None
    tenant: str | None
    jobs: list[str]
    """Every job that holds it: `job_id`, and others where a policy packs jobs."""
    guests: list[str]
    """Opportunistic jobs that run on what its owner leaves, if it has one; it may be free besides."""
    load_ratio: float | None
    """How busy it has been over 10 s, as last said; null: it was not, which is so where there are no guests."""
    note: str
    cpus: int
    """That its jobs are promised beside it; 0: they share what no job is promised."""
    host_memory_bytes: int
    """Memory of the host that its jobs are promised beside it."""


class GpuList(Answer):
    """All GPUs."""

    items: list[Gpu]


class Tenant(Answer):
    """A tenant, its limit and its use."""

    name: str
    gpu_limit: int | None
    weight: float
    on_stall: str
    """`tell`, `stop` or `requeue`: what is done about a job that has stalled. So are the others."""
    on_divergence: str
    on_idle: str
    granted_gpus: int
    held_gpus: int
    """GPUs with jobs of the tenant: one on which two of them are packed counts once."""
    configured: bool
    jobs: dict[str, int]
    """{state: number} of its jobs that have not ended."""
    parent: str
    """The tenant above it; empty: none."""
    guarantees: dict[str, int]
    """{GPU type, or `any`: GPUs that are its own when it needs them}."""
    limits: dict[str, int]
    """{GPU type: most GPUs of it together}."""
    per_user: dict[str, int]
    """{GPU type, or `any`: most GPUs of the jobs of one user together}."""
    lend: bool
    borrow: bool
    guaranteed_gpus: int
    """Of its guarantees; of a tenant without one, those of the tenants below it."""
    borrowed_gpus: int
    """Granted beyond its guarantee and what the tenants above it have left of theirs."""
    lent_gpus: int
    """Of its guarantee, granted to others."""
    waiting_gpus: int
    """That its waiting jobs ask for."""
    owed_gpus: int
    """Of those, as many as are within guarantees."""


class TenantList(Answer):
    """All tenants."""

    items: list[Tenant]


class Setting(Answer):
    """A setting, with its author when it was changed."""

    service: str
    name: str
    value: Number
    default: Number
    describes: str
    changed_by: str | None
    changed_s: float | None


class SettingList(Answer):
    """All settings."""

    items: list[Setting]


class Policy(Answer):
    """The placement policy."""

    policy: str
    available: list[str]
    guests: str
    """`none`, or `antman`: opportunistic jobs run beside those that the policy places."""
    changed_by: str | None
    changed_s: float | None
    note: str


class EventList(Answer):
    """One page of events, as structured CloudEvents."""

    items: list[dict[str, Any]]
    next_cursor: str | None


class LogLines(Answer):
    """Lines of a job's output."""

    items: list[dict[str, Any]]
    """`offset, time_s, attempt, node_id, rank, stream, text`."""


class Code(Answer):
    """An uploaded working directory."""

    code_id: str
    bytes: int
    files: int


class JobFile(Answer):
    """A name in a folder of a job."""

    name: str
    """Empty: the file itself that was asked for."""
    kind: str
    """`file`, `folder`, `link` (leads elsewhere, and cannot be fetched) or `other`."""
    bytes: int
    changed_s: float
    executable: bool


class FileList(Answer):
    """What is in a folder of a job."""

    job_id: str
    attempt: int
    node_id: str
    folder: str
    """The job's working directory on the node."""
    path: str
    items: list[JobFile]


class UploadLimits(Answer):
    """How large an upload may be."""

    files: int
    """Files, folders and links together."""
    unpacked_bytes: int
    packed_bytes: int


class BrowserLogin(Answer):
    """A link that opens the page."""

    path: str
    """At the gateway's address; with a code that lets one browser in, where the cell wants tokens."""
    valid_s: float
    """For so long; 0: it has no code, and does not age."""


class Law(Answer):
    """One law of conservation."""

    name: str
    holds: bool
    checked: int
    violations: list[str]


class Conservation(Answer):
    """The operator's light."""

    light: str
    """`green` or `red`; `dark` before the first check."""
    offset: int | None
    """The check was made of the read models at this offset."""
    checked_s: float | None
    laws: list[Law]


class Disk(Answer):
    """A disk that the cell writes to."""

    keeps: str
    """What is kept there: `log`, `uploads`."""
    path: str
    free_bytes: int
    short: bool
    """It has too little room for new work."""


class Status(Answer):
    """How the cell is."""

    cell: str
    version: str
    next_offset: int
    """Of control, as far as the gateway has seen it."""
    read_models_offset: int
    """Everything up to it is in the read models; -1 before the first event."""
    lag: int
    """Events on control that are not in the read models yet."""
    ready: bool
    accepted: int
    """Requests of the gateway that are in the read models."""
    jobs: dict[str, int]
    gpus: dict[str, int]
    nodes: dict[str, int]
    oldest_waiting: dict[str, Any] | None
    """`id, since_s, reason` of the job that waits longest."""
    newest_by_source: dict[str, int]
    conservation: Conservation
    disks: list[Disk]
    """That of the log where the bus knows it, and that of uploads."""
    shortage: str
    """Why new work is refused for want of room on a disk; empty while it is not."""


class DeadLetter(Answer):
    """A record that a consumer could not take: impossible in the state of a core, or not to be read."""

    offset: int
    """On the dead-letter topic."""
    time_s: float
    """When it was put aside."""
    service: str
    """The consumer that could not take it."""
    type: str
    """Wire name of the event; empty when the record does not say it."""
    event_id: str
    subject: str
    """What the event is about: id of a job, a node, a tenant."""
    job_id: str | None
    """The job: its story tells what came before; null when the record is about something else."""
    record: str
    """Where the record stands: `control/0@17`."""
    error: str
    """What is wrong, and what was expected."""


class DeadLetterDetail(DeadLetter):
    """A dead letter, whole."""

    key: str
    """Of the record on its topic."""
    headers: dict[str, str]
    """Of the record, and those that say why it was put aside (`x-*`)."""
    value: str
    """The record's bytes as text; what is no UTF-8 is replaced."""
    retryable: bool
    """Whether it can be given to its service once more."""
    why_not: str
    """Why it cannot; empty when it can."""


class DeadLetterList(Answer):
    """The newest dead letters."""

    total: int
    """On the topic, those that are not listed included."""
    items: list[DeadLetter]


class Health(Answer):
    """Whether the gateway does its work."""

    ok: bool
    checks: dict[str, str]


ANSWERS: tuple[type[Answer], ...] = (
    BrowserLogin,
    Code,
    Conservation,
    DeadLetterDetail,
    DeadLetterList,
    DryRun,
    EventList,
    FileList,
    Forecast,
    GpuList,
    GroupList,
    Group,
    Health,
    JobDetail,
    JobList,
    Job,
    JobMetrics,
    LogClock,
    LogLines,
    NodeList,
    Policy,
    Requested,
    SettingList,
    Setting,
    Stacks,
    Status,
    Story,
    Submitted,
    TenantList,
    Tenant,
    UploadLimits,
    UseList,
    FailureList,
    Why,
)
