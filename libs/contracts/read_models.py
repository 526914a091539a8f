"""The rows of the read models: what the projection makes of the log, and what every user may query.

One Struct per table; a field is a column of the same name. They are mutable because the projection folds
events into them. Times are seconds since the epoch, `version` is the offset of the last event that changed
the row. Nothing here is an authority: every row can be made again from the log.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from libs.contracts.learned import learned
from libs.contracts.reasons import Number
from libs.contracts.searching import Value


class Row(msgspec.Struct, kw_only=True):
    """A row of one table."""

    table: ClassVar[str] = ""
    key: ClassVar[tuple[str, ...]] = ()
    """Columns of the primary key."""


class JobState(StrEnum):
    """The one state of a job, as users see it."""

    QUEUED = "QUEUED"
    """Waits for a verdict, for quota or for GPUs; the reason says for what."""
    STARTING = "STARTING"
    """Has GPUs; not all of its tasks have been started."""
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    """Its processes are stopped between two mini-batches; they hold GPUs only if their memory could not be parked."""
    MIGRATING = "MIGRATING"
    """Is taken off its GPUs, to run elsewhere."""
    STOPPING = "STOPPING"
    """Its tasks are being ended, or have ended and the verdict is not on the log yet."""
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    REJECTED = "REJECTED"


FINAL_STATES = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.REJECTED)
"""A job in one of these never changes again and holds nothing."""
WAITING_STATES = (JobState.QUEUED, JobState.SUSPENDED)
"""A job in one of these waits for GPUs, for quota, a verdict or its user."""


STATUS_BY_STATE = {
    JobState.SUCCEEDED: "passed",
    JobState.CANCELLED: "killed",
    JobState.FAILED: "unsuccessful",
}
"""{final state: status} in the words of the Philly study (ATC'19, table 5); a rejected job has none."""


class TaskStatus(StrEnum):
    """How far one node's part of the current attempt has come."""

    PLACED = "placed"
    RUNNING = "running"
    SUSPENDED = "suspended"
    EXITED = "exited"


class JobRow(Row, kw_only=True):
    """A job as of its last event."""

    table = "jobs"
    key = ("id",)

    id: str
    name: str
    tenant: str
    user_name: str
    job_class: str
    priority: int
    gpus: int
    widths: list[int] = []
    """How many GPUs it may have: several where it is elastic."""
    max_gpus: int | None = None
    """Most that it may grow to, where its user has lowered the bound since."""
    gpu_types: list[str] = []
    labels: dict[str, str] = {}
    spec: dict[str, Any] = {}
    """The job specification, as in `JobArrived`."""
    submitted_by: str = ""
    state: JobState = JobState.QUEUED
    status: str = ""
    """`passed`, `killed` or `unsuccessful` (`STATUS_BY_STATE`); empty before its end, and for a rejected job."""
    reason: str = ""
    """CamelCase token: why it is in this state."""
    message: str = ""
    numbers: dict[str, Number] = {}
    rejected: list[dict[str, Any]] = []
    """Alternatives that the decision looked at and did not take (`Rejected`)."""
    reason_source: str = ""
    """The service that gave the reason."""
    reason_offset: int = 0
    attempt: int = 0
    """The latest attempt, counted from 1; 0 before the first grant."""
    placement: list[dict[str, Any]] = []
    """The gang (`TaskPlacement`) of the latest placed attempt; kept when the job has ended, empty between slices."""
    tasks: dict[str, TaskStatus] = {}
    """Per node of the gang, while the attempt is placed."""
    holds_gpus: bool = False
    is_host_bound: bool = False
    """It asks for CPUs or memory of the host; how much is in its specification."""
    role: str = ""
    """What it is on its GPUs, or was last: `owner` or `guest`; empty before the first."""
    offered: bool = False
    """It has been offered to become an owner (UpgradeOffered), and that was not withdrawn since."""
    seats: list[dict[str, Any]] = []
    """The gang on the GPUs of which its processes are, running or suspended; empty where there are none."""
    granted_gpus: int = 0
    """GPUs that count against the tenant's limit now."""
    reserved_nodes: list[str] = []
    """Nodes with GPUs that are held back for this gang."""
    submitted_s: float = 0.0
    queued_s: float = 0.0
    """When it last began to wait."""
    placed_s: float | None = None
    """Of the latest attempt."""
    started_s: float | None = None
    """When all tasks of the latest attempt had been started."""
    first_started_s: float | None = None
    finished_s: float | None = None
    not_before_s: float | None = None
    """A retry waits until then."""
    exit_code: int | None = None
    signal: int | None = None
    failure: str | None = None
    """Of the last failed attempt: `FailureClassified.failure`."""
    failure_category: str | None = None
    deciding_line: str | None = None
    failed_attempts: int = 0
    """Whatever they failed of, and whether or not the job was tried again."""
    retries_used: int = 0
    """Of `max_retries`."""
    preemptions: int = 0
    held: bool = False
    """A user has paused it."""
    cancel_requested: bool = False
    preempted: bool = False
    """The current attempt is being taken off its GPUs."""
    migration_id: str | None = None
    rate_per_s: float | None = None
    """Mini-batches per second."""
    loss: float | None = None
    loss_nonfinite: str = ""
    """`nan`, `inf` or `-inf` where the newest loss is no finite number; `loss` is None then."""
    minibatches: int = 0
    """Mini-batches of the latest attempt."""
    measured_until_s: float | None = None
    """Up to when mini-batches of the latest attempt were seen; None: there were none."""
    memory_peak_bytes: int | None = None
    gpu_s: float = 0.0
    """GPU time of the stretches in which it held GPUs and that are over, in GPU seconds."""
    holding_offset: int | None = None
    """Where the present stretch began (`HoldingRow.begin_offset`); None: it holds no GPUs."""
    holding_gpus: dict[str, int] = {}
    """{GPU type: GPUs of it} of that stretch."""
    best_loss: float | None = None
    """The lowest loss when it was found to have converged (JobConverged); None: it was not. So are the others."""
    best_epoch: float | None = None
    converged_epoch: float | None = None
    """The first epoch with a loss within the ratio of the lowest."""
    gpu_s_since_converged: float | None = None
    """GPU seconds from then until that was found."""
    group_id: str | None = None
    """Its array or DAG; None: it was submitted alone."""
    group_index: int | None = None
    """Its place there (`GroupPlace.index`)."""
    leads_group: bool = False
    """It is the first of its array or DAG: in lists its row stands for the whole."""
    after: list[dict[str, Any]] = []
    """What it had to wait for (`Dependency`)."""
    notices: dict[str, str] = {}
    """{CamelCase token: sentence} of what is wrong with the latest attempt while it runs (JobStalled, GpuIdle) or
    since it ran (LossDiverged)."""
    arrived_offset: int = 0
    version: int = 0


class AttemptRow(Row, kw_only=True):
    """One placed attempt of a job."""

    table = "attempts"
    key = ("job_id", "attempt")

    job_id: str
    attempt: int
    placement: list[dict[str, Any]]
    placed_s: float
    started_s: float | None = None
    ended_s: float | None = None
    outcome: str = ""
    """`succeeded`, `failed`, `preempted`, `tried` (its job's trial ended well) or `cancelled`; empty while it lasts."""
    gpu_s: float = 0.0
    """GPU time of its stretches with GPUs that are over, in GPU seconds."""
    exit_code: int | None = None
    signal: int | None = None
    failure: str | None = None
    """The reason, when failure analysis has judged it; `cause` is finer, and empty where the outcome says it all."""
    cause: str = ""
    failed_on: str = ""
    """The node with the line that decided, as far as lines were followed; else that of the task that failed first."""
    reason: str = ""
    message: str = ""
    version: int = 0


class HoldingRow(Row, kw_only=True):
    """A stretch of time in which a job held the same GPUs: what the GPU time of users and tenants is summed of.

    A GPU that two jobs share is in the stretches of both.
    """

    table = "holdings"
    key = ("job_id", "begin_offset", "gpu_type")

    job_id: str
    begin_offset: int
    """Of the event by which it got the GPUs."""
    gpu_type: str
    gpus: int
    begin_s: float
    end_s: float | None = None
    """When its last task there had exited; None: it holds them."""


class LabelRow(Row, kw_only=True):
    """One label of a job, for filters."""

    table = "job_labels"
    key = ("job_id", "name")

    job_id: str
    name: str
    value: str


class NodeState(StrEnum):
    """Whether a node can be given work."""

    UP = "UP"
    DRAINING = "DRAINING"
    DRAINED = "DRAINED"
    LOST = "LOST"
    LEFT = "LEFT"


class NodeRow(Row, kw_only=True):
    """A node that has joined at least once."""

    table = "nodes"
    key = ("id",)

    id: str
    state: NodeState
    incarnation: int = 0
    address: str = ""
    rack: str = ""
    files_port: int = 0
    """Where its agent serves files of jobs; 0: nowhere."""
    state_dir: str = ""
    virtual: bool = False
    agent_version: str = ""
    features: list[str] = []
    """What jobs may need of it beside GPUs (`features.py`)."""
    image_runner: str = ""
    """The program that runs container images there; empty: there is none."""
    gpu_indices: list[int] = []
    cpus: int = 0
    """CPUs that jobs may be promised."""
    memory_bytes: int = 0
    """Memory of the host that they may be promised."""
    bounds_by: str = ""
    """As in `NodeJoined`."""
    present: bool = True
    """Its agent has joined and was not lost since."""
    draining: bool = False
    drained: bool = False
    note: str = ""
    """Why it drains, left or is lost."""
    errors: int = 0
    """That its agent has logged since its start."""
    last_error: str = ""
    clock_skew_s: float = 0.0
    """By how much its clock is ahead of the log's, as seen last (ClockSkewed); 0: by less than 2 s."""
    cpu_utilisation_ratio: float | None = None
    """Of the host, as measured last (HostProfiled); None: it was not yet."""
    memory_used_bytes: int | None = None
    """Mean of the same minute."""
    host_memory_bytes: int | None = None
    """All memory of the host, of which jobs may be promised `memory_bytes`."""
    measured_until_s: float | None = None
    joined_s: float | None = None
    changed_s: float = 0.0
    version: int = 0


class GpuRow(Row, kw_only=True):
    """One GPU of a node, and which job holds it."""

    table = "gpus"
    key = ("id",)

    id: str
    """`<node id>:<index>`."""
    node_id: str
    gpu_index: int
    gpu_type: str
    memory_bytes: int
    uuid: str = ""
    healthy: bool = True
    present: bool = True
    """The node still has it (it was in the last NodeJoined)."""
    note: str = ""
    job_id: str | None = None
    attempt: int | None = None
    tenant: str | None = None
    packed: list[dict[str, Any]] = []
    """Further jobs that hold it, `{"job_id", "attempt", "tenant"}` each, where a policy packs jobs."""
    guests: list[dict[str, Any]] = []
    """Opportunistic jobs that run on what its owner leaves, as in `packed`."""
    load_ratio: float | None = None
    """How busy it has been over 10 s, as last said; None: it was not."""
    version: int = 0

    @property
    def holders(self) -> list[tuple[str, int, str]]:
        """(Job id, attempt, tenant) of every job that holds it."""
        first = [] if self.job_id is None else [(self.job_id, self.attempt or 0, self.tenant or "")]
        return first + [_named(other) for other in self.packed]

    @property
    def occupants(self) -> list[tuple[str, int, str]]:
        """The same of every job that holds it, and of its guests."""
        return self.holders + [_named(other) for other in self.guests]

    def admit(self, holder: tuple[str, int, str], *, as_guest: bool) -> None:
        """The job, as in `holders`, has it from now on."""
        if as_guest:
            self.guests = [*self.guests, _fields(holder)]
        else:
            self._hold([*self.holders, holder])

    def dismiss(self, job_id: str) -> bool:
        """The job has it no more; whether it had."""
        had = any(other == job_id for other, _, _ in self.occupants)
        self._hold([holder for holder in self.holders if holder[0] != job_id])
        self.guests = [other for other in self.guests if other["job_id"] != job_id]
        return had

    def _hold(self, holders: list[tuple[str, int, str]]) -> None:
        self.job_id, self.attempt, self.tenant = holders[0] if holders else (None, None, None)
        self.packed = [_fields(other) for other in holders[1:]]


def _fields(holder: tuple[str, int, str]) -> dict[str, Any]:
    return dict(zip(("job_id", "attempt", "tenant"), holder, strict=True))


def _named(fields: dict[str, Any]) -> tuple[str, int, str]:
    return fields["job_id"], fields["attempt"], fields["tenant"]


class TenantRow(Row, kw_only=True):
    """A tenant that was configured or has submitted a job."""

    table = "tenants"
    key = ("name",)

    name: str
    gpu_limit: int | None = None
    weight: float = 1.0
    on_stall: str = "tell"
    """`tell`, `stop` or `requeue`: what is done about a job that has stalled. So are the others."""
    on_divergence: str = "tell"
    on_idle: str = "tell"
    granted_gpus: int = 0
    configured: bool = False
    parent: str = ""
    """As in TenantConfigured, and so the next ones."""
    guarantees: dict[str, int] = {}
    limits: dict[str, int] = {}
    per_user: dict[str, int] = {}
    lend: bool = True
    borrow: bool = True
    version: int = 0


class EventRow(Row, kw_only=True):
    """One record of the control topic."""

    table = "events"
    key = ("log_offset",)

    log_offset: int
    id: str
    type: str
    source: str
    subject: str
    job_id: str | None
    node_id: str | None
    time_s: float
    """By the log's clock (`Envelope.time_s`)."""
    appended_at_s: float
    causation_id: str
    data: dict[str, Any]
    said_s: float | None = None
    """By the clock of the source (`Envelope.said_s`)."""


class EventCountRow(Row, kw_only=True):
    """How often one source has said one type of event: which has spoken last, without a look through all events."""

    table = "event_counts"
    key = ("source", "type")

    source: str
    type: str
    events: int = 0
    newest_offset: int = 0
    newest_s: float = 0.0


class ProfileRow(Row, kw_only=True):
    """One measured window of a running job (`JobProfiled`): a point of its curves."""

    table = "profiles"
    key = ("job_id", "attempt", "window_start_s")

    job_id: str
    attempt: int
    window_start_s: float
    window_s: float
    minibatches_total: int
    rate_per_s: float
    loss: float | None
    memory_peak_bytes: int
    memory_min_bytes: int
    log_offset: int


class SettingRow(Row, kw_only=True):
    """A setting that came over the log; the placement policy is (`placement`, `policy`)."""

    table = "settings"
    key = ("service", "name")

    service: str
    name: str
    value: Number
    changed_by: str
    changed_s: float
    note: str = ""
    version: int = 0


class FailureNoticeRow(Row, kw_only=True):
    """What users are warned of at a submission: causes of which their jobs fail again and again, wrong inputs."""

    table = "failure_notices"
    key = ("kind", "about")

    kind: str
    """`user` or `input`."""
    about: str
    """The user, or the input as jobs name it."""
    message: str
    said_s: float
    holds: bool = False
    """It is an input in quarantine."""
    version: int = 0


class ReportRow(Row, kw_only=True):
    """One number that a job's script has reported (`MetricsReported`): a point of a learning curve."""

    table = "reports"
    key = ("job_id", "attempt", "name", "step")

    job_id: str
    attempt: int
    name: str
    """Of the metric."""
    step: float
    value: float
    time_s: float
    log_offset: int


class GroupRow(Row, kw_only=True):
    """An array or a DAG, as it was submitted. How its jobs are is in their rows."""

    table = "job_groups"
    key = ("id",)

    id: str
    kind: str
    """`array` or `dag`."""
    name: str
    tenant: str
    """Of all of its jobs."""
    user_name: str
    size: int
    """Its jobs."""
    first_index: int = 0
    """The least of its indices."""
    at_once: int | None = None
    """Most jobs of an array that are let through together."""
    submitted_by: str = ""
    submitted_s: float = 0.0
    arrived_offset: int = 0


class SweepState(StrEnum):
    """The one state of a sweep, as users see it."""

    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    """Its end has been asked for."""
    TARGET_REACHED = "TARGET_REACHED"
    EXHAUSTED = "EXHAUSTED"
    """All its trials are over."""
    CANCELLED = "CANCELLED"


FINAL_SWEEP_STATES = (SweepState.TARGET_REACHED, SweepState.EXHAUSTED, SweepState.CANCELLED)
"""A sweep in one of these starts no more trials."""


class SweepRow(Row, kw_only=True):
    """A sweep as of its last event."""

    table = "sweeps"
    key = ("id",)

    id: str
    name: str
    spec: dict[str, Any]
    """The specification, as in `SweepArrived`."""
    submitted_by: str
    state: SweepState = SweepState.RUNNING
    reason: str = ""
    """CamelCase token: why it is in this state."""
    message: str = ""
    best_trial: int | None = None
    """None: no trial has reported anything yet. A trial that has reached the target trains on, and may become better
    after the sweep has ended."""
    best_value: float | None = None
    best_parameters: dict[str, Value] = {}
    submitted_s: float = 0.0
    ended_s: float | None = None
    arrived_offset: int = 0
    version: int = 0


class TrialState(StrEnum):
    """The one state of a trial; how its job is, is the job's state."""

    RUNNING = "RUNNING"
    """Its job is not over."""
    PRUNED = "PRUNED"
    """It was found hopeless; its job is being cancelled, or over."""
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"
    """From outside, or by the end of the sweep."""


class TrialRow(Row, kw_only=True):
    """One trial of a sweep."""

    table = "trials"
    key = ("job_id",)

    job_id: str
    sweep_id: str
    number: int
    parameters: dict[str, Value]
    state: TrialState = TrialState.RUNNING
    favourite: bool = False
    """It goes before the others now."""
    reason: str = ""
    """CamelCase token: why it was promoted, demoted or pruned last; empty when it never was."""
    message: str = ""
    reports: int = 0
    """Of the objective's metric; a step that an attempt repeats does not count."""
    best_value: float | None = None
    last_step: float | None = None
    last_value: float | None = None
    started_s: float = 0.0
    ended_s: float | None = None
    version: int = 0


ROW_TYPES: tuple[type[Row], ...] = (
    JobRow,
    AttemptRow,
    HoldingRow,
    LabelRow,
    NodeRow,
    GpuRow,
    TenantRow,
    EventRow,
    EventCountRow,
    ProfileRow,
    SettingRow,
    FailureNoticeRow,
    ReportRow,
    SweepRow,
    TrialRow,
    GroupRow,
)
for _row_type in ROW_TYPES:
    learned(_row_type)

CHECKPOINT_TABLE = "checkpoint"
"""One row: `cell`, `next_offset` (everything before it is in the tables), `log_id`, `digest` (of the tables and of the
fold that fills them), `tables` (names of all of them, comma between), `changed_s`. Versions of the projection find by
it what others have made: columns may be added, none removed."""
