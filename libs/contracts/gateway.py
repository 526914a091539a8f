"""Requests of users and operators, as accepted by the gateway.

All are appended by the gateway alone, but for those that the sweeps service makes for trials and for the jobs of
arrays and DAGs (`Service.requests`).
"""

from __future__ import annotations

import msgspec

from libs.contracts.base import Event, Json, event
from libs.contracts.groups import Dependency, GroupChange, GroupMember, GroupPlace
from libs.contracts.jobs import JobSpec
from libs.contracts.reasons import Number
from libs.contracts.searching import SweepSpec
from libs.contracts.upcast import upcasts

OWNER = "gateway"


@event("job.arrived.v1", owner=OWNER, subject="job_id")
class JobArrived(Event, frozen=True, kw_only=True):
    """A valid job was accepted for the cell. From here on it is never lost; nothing is decided yet."""

    job_id: str
    spec: JobSpec
    submitted_by: str
    request_digest: str = ""
    """Hash of the request body: a repeated idempotency key with another body is refused."""
    after: list[Dependency] = []
    """It may start when all of these are met."""
    group: GroupPlace | None = None
    """Its place in an array or a DAG; None: it was submitted alone."""


@event("array.arrived.v1", owner=OWNER, subject="group_id")
class ArrayArrived(Event, frozen=True, kw_only=True):
    """A valid array was accepted. A job per index arrives with this event as its cause."""

    group_id: str
    spec: JobSpec
    """Of every job, but for its name and the variables that tell its index."""
    indices: list[int]
    """Ascending, each once, at least one."""
    at_once: int | None = None
    """Most of its jobs that admission lets through and that have not ended; None: no limit."""
    after: list[Dependency] = []
    """Each of its jobs may start when all of these are met."""
    submitted_by: str
    request_digest: str = ""
    """As in JobArrived."""


@event("dag.arrived.v1", owner=OWNER, subject="group_id")
class DagArrived(Event, frozen=True, kw_only=True):
    """A valid DAG of jobs was accepted as a whole. Its jobs arrive with this event as their cause."""

    group_id: str
    name: str
    jobs: list[GroupMember]
    """Each behind those of them that it waits for."""
    submitted_by: str
    request_digest: str = ""
    """As in JobArrived."""


@event("group.change_requested.v1", owner=OWNER, subject="group_id")
class GroupChangeRequested(Event, frozen=True, kw_only=True):
    """A user asks the same of every job of an array or a DAG that has not ended.

    The requests to the jobs follow as events of theirs, with this event as their cause.
    """

    group_id: str
    change: GroupChange
    requested_by: str
    priority: int = 0
    """With `priority`: the jobs' new one."""
    grace_s: float = 10.0
    """With `cancel`: as in JobCancelRequested."""
    note: str = ""


@event("job.cancel_requested.v1", owner=OWNER, subject="job_id")
class JobCancelRequested(Event, frozen=True, kw_only=True):
    """The job is asked to end. Placement answers with JobCancelled unless the job ends by itself first."""

    job_id: str
    requested_by: str
    grace_s: float = 10.0
    """Time between the polite and the forceful signal to running tasks."""
    note: str = ""


@event("job.pause_requested.v1", owner=OWNER, subject="job_id")
class JobPauseRequested(Event, frozen=True, kw_only=True):
    """Hold the job: a waiting job is not placed, a running one is suspended and gives its GPUs up, if it can."""

    job_id: str
    requested_by: str


@event("job.resume_requested.v1", owner=OWNER, subject="job_id")
class JobResumeRequested(Event, frozen=True, kw_only=True):
    """Let a held job go on: in its turn, as soon as there are GPUs for it."""

    job_id: str
    requested_by: str


@event("job.priority_changed.v1", owner=OWNER, subject="job_id")
class JobPriorityChanged(Event, frozen=True, kw_only=True):
    """The job's priority is now `priority`; it takes effect at the next decision."""

    job_id: str
    priority: int
    requested_by: str


@event("job.max_gpus_changed.v1", owner=OWNER, subject="job_id")
class JobMaxGpusChanged(Event, frozen=True, kw_only=True):
    """An elastic job may have at most so many GPUs from now on: it does not grow beyond, and shrinks when it has more.

    It shrinks under a policy that resizes jobs, as soon as its processes can; under others it keeps what it has.
    """

    job_id: str
    max_gpus: int
    """From the number that it asks for to the upper bound of its `elastic` range."""
    requested_by: str


@event("job.limits_requested.v1", owner=OWNER, subject="job_id")
class LimitsRequested(Event, frozen=True, kw_only=True):
    """An operator bounds what a job may have of each of its GPUs, beside what coordination decides; None: no bound.

    Each request replaces the one before it.
    """

    job_id: str
    memory_limit_bytes: int | None
    """Of the GPU's memory, for each of its processes."""
    compute_share_ratio: float | None
    """Of the GPU's time, from 0 to 1."""
    requested_by: str


@event("job.code_changed.v1", owner=OWNER, subject="job_id")
class JobCodeChanged(Event, frozen=True, kw_only=True):
    """Files were added to a job before it was placed: its attempts start with this upload from now on.

    An attempt that was placed before this event keeps what it was started with.
    """

    job_id: str
    code_id: str
    requested_by: str


@event("job.session_opened.v1", owner=OWNER, subject="job_id")
class JobSessionOpened(Event, frozen=True, kw_only=True):
    """A user goes into a running job: a command, a terminal, or connections to a port of its node.

    It is on the log before anything of the session happens on the node. The job itself goes on as before.
    """

    job_id: str
    session_id: str
    kind: str
    """`exec`, `shell` or `forward`."""
    opened_by: str
    """Name of the token, as in JobArrived.submitted_by."""
    attempt: int
    node_id: str
    rank: int = 0
    """The rank that gives the command its environment."""
    command: list[str] = []
    """Of `exec` and `shell`; empty: the user's shell on that node."""
    port: int | None = None
    """Of `forward`: the port of the node."""


@event("job.session_closed.v1", owner=OWNER, subject="job_id")
class JobSessionClosed(Event, frozen=True, kw_only=True):
    """The session is over: its processes have ended, or are being ended.

    Of a session that has ended with its gateway the next gateway says so.
    """

    job_id: str
    session_id: str
    exit_code: int | None = None
    """Of the command; None: it has none, or was ended by a signal."""
    signal: int | None = None
    note: str = ""
    """Why the session has ended, unless by the end of its command."""


@event("sweep.arrived.v1", owner=OWNER, subject="sweep_id")
class SweepArrived(Event, frozen=True, kw_only=True):
    """A valid sweep was accepted. Its trials become jobs one by one, or all at once."""

    sweep_id: str
    spec: SweepSpec
    submitted_by: str
    request_digest: str = ""
    """As in JobArrived."""


@event("sweep.cancel_requested.v1", owner=OWNER, subject="sweep_id")
class SweepCancelRequested(Event, frozen=True, kw_only=True):
    """The sweep is asked to end, with all its trials."""

    sweep_id: str
    requested_by: str
    note: str = ""


TELL, STOP, REQUEUE = "tell", "stop", "requeue"
"""What is done about a job that has stalled, has diverged or leaves its GPUs idle: nothing but to say so; it ends as
failed; it starts anew, from its checkpoint where it has one."""


ANY_TYPE = "any"
"""In place of a GPU type: GPUs of whatever type."""


@event("tenant.configured.v1", owner=OWNER, subject="tenant")
class TenantConfigured(Event, frozen=True, kw_only=True):
    """The tenant's limits and shares from now on; each takes effect at quota's next decision.

    Running jobs are not stopped when a limit shrinks below their use. What a tenant may use counts for all tenants
    below it in the tree together. A record without the fields of virtual clusters (Philly study, ATC'19, section 2.3)
    is one of a tenant at the root without a guarantee.
    """

    tenant: str
    gpu_limit: int | None
    """Most GPUs that the tenant's granted jobs may ask for together; None: no limit."""
    requested_by: str
    weight: float = 1.0
    """Its part of what can be borrowed, beside that of other tenants."""
    parent: str = ""
    """The tenant that this one's share is a part of; empty: none, it is at the root."""
    guarantees: dict[str, int] = {}
    """{GPU type, or `any`: GPUs that are its own when it needs them}. While it does not, others may borrow them."""
    limits: dict[str, int] = {}
    """{GPU type: most GPUs of it together}, beside `gpu_limit`."""
    per_user: dict[str, int] = {}
    """{GPU type, or `any`: most GPUs of the jobs of one user together}."""
    lend: bool = True
    """Whether others may use what it does not use of its guarantee."""
    borrow: bool = True
    """Whether it may use more than its guarantee."""
    on_stall: str = ""
    """`tell`, `stop` or `requeue`; empty: as it was, at first `tell`. So are the others."""
    on_divergence: str = ""
    on_idle: str = ""


NO_GUESTS = "none"
ANTMAN_GUESTS = "antman"
GUESTS = (NO_GUESTS, ANTMAN_GUESTS)
"""Values of `PolicyChanged.guests`."""


@event("policy.changed.v2", owner=OWNER, subject="policy")
class PolicyChanged(Event, frozen=True, kw_only=True):
    """Placement uses this policy from its next decision on. The options matter to allocation policies alone."""

    policy: str
    requested_by: str
    note: str = ""
    space_sharing: bool = False
    """Whether two jobs may share GPUs."""
    heterogeneity_aware: bool = True
    """False: decide as if all GPU types were equally fast."""
    water_filling: bool = False
    """For `max_min_fairness`: go on until every job is bottlenecked."""
    cost_per_hour: dict[str, float] = {}
    """{GPU type: price of one GPU for one hour}, for the policies that look at cost."""
    guests: str = NO_GUESTS
    """Which jobs may run beside the ones that the policy places: `none`, or `antman`: opportunistic jobs as guests
    (AntMan, OSDI'20, section 3.3)."""

    @property
    def takes_guests(self) -> bool:
        """Whether there may be guests."""
        return self.guests != NO_GUESTS


@upcasts("policy.changed.v1", to="policy.changed.v2")
def _name_the_queue(fields: Json) -> Json:
    """`fifo` was the name of a queue, today's `strict_fifo`, until allocation policies came and one took the name.

    The same change gave the event its options, and every record is written with all of its fields: a record
    without them is older.
    """
    queue = fields.get("policy") == "fifo" and "space_sharing" not in fields
    return fields | {"policy": "strict_fifo"} if queue else fields


@event("setting.changed.v1", owner=OWNER, subject="service")
class SettingChanged(Event, frozen=True, kw_only=True):
    """A number that a core decides by has changed. Settings travel on the log so that a replay has them too."""

    service: str
    name: str
    value: Number
    requested_by: str


@event("deadletter.retried.v1", owner=OWNER, subject="service")
class DeadLetterRetried(Event, frozen=True, kw_only=True):
    """A record that a service could not take was appended again to its topic, unchanged, for that service.

    It is on the log once the record is. What becomes of the record is told by the service, as for any other record: it
    takes it, or puts it aside once more.
    """

    service: str
    """The consumer that had put the record aside."""
    record: str
    """Where the record stood, as `telemetry/3@17`; with `service` it names the dead letter."""
    event_id: str
    """Of the record; empty when it does not say it."""
    requested_by: str


@event("input.release_requested.v1", owner=OWNER, subject="input")
class InputReleaseRequested(Event, frozen=True, kw_only=True):
    """An input that is in quarantine is well again: InputReleased follows where it is in quarantine."""

    input: str
    requested_by: str


@event("node.drain_requested.v1", owner=OWNER, subject="node_id")
class NodeDrainRequested(Event, frozen=True, kw_only=True):
    """Give the node no new work and move away what runs there."""

    node_id: str
    note: str
    """Why; required of the operator."""
    requested_by: str
    now: bool = True
    """Whether jobs that would start again from zero leave at once, too. Else they are moved with their state where that
    is possible, and run on to their end where it is not."""


@event("node.undrain_requested.v1", owner=OWNER, subject="node_id")
class NodeUndrainRequested(Event, frozen=True, kw_only=True):
    """The node may be used again."""

    node_id: str
    requested_by: str


class IsolatedRate(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a configuration trains alone."""

    model: str
    batch_size: int | None
    gpus: int
    steps_per_s: dict[str, float]
    """{GPU type: steps per second of the whole job}, GPUs consolidated; missing or 0: it cannot run there."""
    spread_steps_per_s: dict[str, float] = {}
    """The same with the GPUs spread over more servers than are needed; missing or 0: not known."""


class ColocatedRate(msgspec.Struct, frozen=True, kw_only=True):
    """How fast two configurations train when they share GPUs."""

    a_model: str
    a_batch_size: int | None
    b_model: str
    b_batch_size: int | None
    gpus: int
    gpu_type: str
    a_steps_per_s: float
    b_steps_per_s: float


@event("throughputs.provided.v1", owner=OWNER, subject="provided_by")
class ThroughputsProvided(Event, frozen=True, kw_only=True):
    """An operator tells how fast configurations train. Adds to what was provided before; equal rows are replaced."""

    provided_by: str
    isolated: list[IsolatedRate] = []
    colocated: list[ColocatedRate] = []
