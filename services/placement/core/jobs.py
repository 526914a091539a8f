"""A job that has not ended, as placement sees it.

Phases (table and picture in the README):

    ARRIVED ──admitted──> WAITING ──granted──> QUEUED ──placed──> ACTIVE ──all tasks exited──> gone
                             ▲                   ▲                  │ preempted: next attempt      (succeeded,
                             │                   └──────────────────┤                               cancelled)
                             └──── retry ──── FAILED <── badly ─────┤
                                                 QUEUED <── TRIED <─┘ a trial, well
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from libs.contracts.cluster import TaskPlacement, width_of
from libs.contracts.features import other_than
from libs.contracts.jobs import GpuRequest, JobClass, JobSpec
from libs.contracts.placement import Overlap, Role
from libs.contracts.reasons import Reason


class Phase(StrEnum):
    """Where a job is in its life, as placement sees it. Ended jobs are forgotten."""

    ARRIVED = "arrived"
    """Admission has not judged yet."""
    WAITING = "waiting"
    """Waits for quota (or for the end of a back-off)."""
    QUEUED = "queued"
    """May be placed; on the queue unless it is held."""
    ACTIVE = "active"
    """Holds GPUs."""
    FAILED = "failed"
    """An attempt failed; failure analysis decides whether there is another."""
    TRIED = "tried"
    """Its trial has ended well; admission says what follows."""


ACTIVE = Phase.ACTIVE
"""Looked at for every job in every round: Python 3.11 runs a descriptor for each look at a member of an enum."""


BEHIND = 1 << 40
"""More than any two priorities differ by."""


class TaskExit(msgspec.Struct, frozen=True, kw_only=True):
    """How a task ended."""

    exit_code: int | None
    signal: int | None
    outcome: str
    stderr_tail: str = ""
    memory_signs: bool | None = None

    @property
    def good(self) -> bool:
        """Whether the task did what it should."""
        return self.outcome == "exited" and self.exit_code == 0


class Cancellation(msgspec.Struct, frozen=True, kw_only=True):
    """A user, or another service, wants the job to end."""

    requested_by: str
    grace_s: float


class Meeting(msgspec.Struct, frozen=True, kw_only=True):
    """Where the ranks of a gang on several nodes meet."""

    node_id: str
    port: int


class Move(msgspec.Struct, kw_only=True):
    """A live move: the job's next attempt is being made ready elsewhere to take over the state of this one."""

    migration_id: str
    attempt: int
    gang: list[TaskPlacement]
    since_s: float
    reason: Reason
    meeting: Meeting | None = None
    started: dict[str, None] = {}
    """Nodes of the destination where the task has reported its start."""
    ready: dict[str, None] = {}
    """Those that wait for their state."""
    restored: dict[str, None] = {}
    """Those that have it."""
    gone: dict[str, None] = {}
    """Those where the task has ended."""
    halted: bool = False
    """The source has been ordered to stand still."""
    fetching: bool = False
    """The destination has been ordered to fetch its state."""

    @property
    def width(self) -> int:
        """GPUs that the job has afterwards."""
        return width_of(self.gang)

    @property
    def has_started(self) -> bool:
        """Whether all of the destination's tasks have."""
        return all(task.node_id in self.started for task in self.gang)

    @property
    def is_ready(self) -> bool:
        """Whether all of the destination's tasks wait for their state."""
        return all(task.node_id in self.ready for task in self.gang)

    @property
    def is_restored(self) -> bool:
        """Whether all of them have it."""
        return all(task.node_id in self.restored for task in self.gang)


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """Why a tenant has an attempt stopped."""

    name: str
    """`stalled`, `diverged` or `idle`."""
    reason: Reason


class Tasks(msgspec.Struct, kw_only=True):
    """What the agents have said of the tasks of an attempt, by node."""

    started: dict[str, None] = {}
    """Nodes where the task has reported its start."""
    exits: dict[str, TaskExit] = {}
    """{node id: how its task ended}, in order of ending."""
    movable: dict[str, None] = {}
    """Nodes with a task that can hand over its state."""
    resizable: dict[str, None] = {}
    """Those with a task that can hand it over to more or fewer processes, too."""
    still: dict[str, None] = {}
    """Nodes where the task stands still."""
    on_gpu: dict[str, None] = {}
    """Those of them where its memory is still on the GPUs."""
    untrained: dict[str, None] = {}
    """Those of them where it had done no mini-batch yet."""
    overdue: bool = False
    """They are being stopped because not all of them have started in time."""
    alarm: Alarm | None = None
    """They are being stopped for this."""
    beside: list[Overlap] = []
    """Older attempts that have ended at an unknown time, perhaps while these ran (`lifecycle/strays.py`)."""


class Account(msgspec.Struct, kw_only=True):
    """The time on GPUs that a job has received."""

    charged_s: float = 0.0
    """While its attempt lasts: up to when its time on GPUs has been booked."""
    attained_s: float = 0.0
    """Attained service: time that it has held GPUs, up to then."""
    steps_per_s: float = 0.0
    """How fast it is taken to be on the GPUs that it holds, beside its companion there."""
    steps_done: float = 0.0
    """By its rate and the time that it held GPUs."""
    isolated_s: float = 0.0
    """How long the first `isolated_steps` of them would have taken on 1/n of the cluster, each at the n of its time."""
    isolated_steps: float = 0.0

    def begin_anew(self) -> None:
        """The work that was done is lost."""
        self.steps_done = self.isolated_s = self.isolated_steps = 0.0


class PlacedRates(msgspec.Struct, frozen=True, kw_only=True):
    """Steps per second of a gang by how close together it is; 0: not known."""

    together: float = 0.0
    """On as few servers as it needs."""
    spread: float = 0.0
    """On more."""


class Profile(msgspec.Struct, kw_only=True):
    """What introspection has measured of a job that was alone on its GPUs."""

    rates: dict[str, float] = {}
    """{GPU type: steps per second}, as profiled there last."""
    placed: dict[str, PlacedRates] = {}
    """{GPU type: the same, by how close together its GPUs were}."""
    utilisation: float | None = None
    """Part of its GPUs that it uses."""
    memory_peak_bytes: int = 0
    """Of one of its GPUs."""


def profile_before(spec: JobSpec) -> Profile:
    """What is known of the job before it has run: nothing, but for jobs of simulations that say so."""
    work = spec.simulated
    if work is None:
        return Profile()
    return Profile(utilisation=work.profiled_utilisation, memory_peak_bytes=work.profiled_memory_bytes)


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What a job is to run before its gang starts."""

    steps: int
    """Mini-batches."""
    asked: JobSpec
    """The job as its user described it."""


class Job(msgspec.Struct, kw_only=True):
    """A job that has not ended."""

    job_id: str
    spec: JobSpec
    """As its user described it; while its trial is not over, as that runs."""
    seq: int
    """Order of arrival."""
    priority: int
    phase: Phase = Phase.ARRIVED
    attempt: int = 0
    last_attempt: int = 0
    """The highest number that has been given to an attempt for a move."""
    requeues: int = 0
    """Times that it was queued again because it had stalled, diverged or left its GPUs idle."""
    returns_to_quota: bool = False
    """What it has borrowed was reclaimed: when it has left its GPUs, it waits for quota; one that is suspended for that
    stands still until then."""
    arrived_s: float = 0.0
    queued_since_s: float = 0.0
    """When it first waited for GPUs since it last ran, or since its user resumed it; counts for relaxation and
    reservation."""
    max_gpus: int | None = None
    """Most that its user lets it have; None: as its range says."""
    memory_limit_bytes: int | None = None
    """Most of each GPU's memory that an operator lets it have; None: all of it."""
    compute_share_ratio: float | None = None
    """The same of the GPU's time, from 0 to 1."""
    held: bool = False
    """Paused by its user."""
    opportunistic: bool = False
    """Its attempt has been granted the use of what guaranteed jobs leave, and no quota."""
    guest: bool = False
    """It is, or waits to be, a guest on GPUs that it does not hold. No mechanism sees it."""
    offered: bool = False
    """It could be the owner of its GPUs, and quota has not answered yet: nothing else gets them until then."""
    expelled_by: dict[str, None] = {}
    """Owners that it has slowed down: it does not go beside them again."""
    avoided: list[str] = []
    """Nodes where it is not placed, because it has failed there: while others can take it."""
    since_s: float = 0.0
    """When its attempt was given the GPUs that it has, or gave them up."""
    cancellation: Cancellation | None = None
    wait_code: str = ""
    """What the last JobQueued of this attempt has said since it last had GPUs: its code, and behind which job it is
    where it leads a line; empty before the first."""
    gang: list[TaskPlacement] = []
    meeting: Meeting | None = None
    """Of a gang on several nodes."""
    gpu_type: str = ""
    """Of the GPUs that it holds, or held last."""
    tasks: Tasks = msgspec.field(default_factory=Tasks)
    suspended: bool = False
    """Between two of its turns, or paused: it holds no GPUs, and its gang says where it was."""
    leaving: Reason | None = None
    """Why the attempt was preempted; its tasks are being stopped."""
    stopping: bool = False
    """Every task of the attempt is being stopped: it is cancelled or preempted, or a task has ended badly."""
    move: Move | None = None
    strays: list[Overlap] = []
    """Its attempts whose node was lost with them, and whose end nobody has seen (`lifecycle/strays.py`)."""
    must_leave: Reason | None = None
    """Why it must not stay where it is, if its move fails."""
    account: Account = msgspec.field(default_factory=Account)
    profile: Profile = msgspec.field(default_factory=Profile)
    pool: str = ""
    """On which side of the pools it is placed: the feature of one, or `OUTSIDE_POOLS`; empty: on either."""
    trial: Trial | None = None
    """Its attempts are its trial; None: it has none, or that is over."""

    @property
    def needs(self) -> list[str]:
        """Features that every node must have where it is placed."""
        return self.needs_in(self.pool) if self.pool or self.avoided else self.spec.needs

    def needs_in(self, pool: str) -> list[str]:
        """The same, were it placed on this side of the pools."""
        return [*self.spec.needs, *([pool] if pool else []), *map(other_than, self.avoided)]

    @property
    def widths(self) -> list[int]:
        """How many GPUs it may be given now, ascending. It may have more still: then it is to shrink."""
        return [width for width in self.spec.widths if self.max_gpus is None or width <= self.max_gpus]

    @property
    def next_attempt(self) -> int:
        """A number that no attempt has had: agents remember their tasks by it."""
        return max(self.attempt, self.last_attempt) + 1

    @property
    def width(self) -> int:
        """GPUs of its gang; while it waits, as many as it asks for."""
        return width_of(self.gang) or self.spec.gpus.count

    @property
    def as_asked(self) -> bool:
        """Whether it has as many GPUs as it asks for; only an elastic job may have others."""
        return self.spec.elastic is None or self.width == self.spec.gpus.count

    @property
    def request(self) -> GpuRequest:
        """What it needs elsewhere to go on as it is."""
        return msgspec.structs.replace(self.spec.gpus, count=self.width)

    @property
    def order(self) -> tuple[int, int, str]:
        """Its place in the queue: higher priority first, then in order of arrival.

        An opportunistic one that no guest's seat is looked for stands behind all others.
        """
        behind = BEHIND if self.opportunistic and not self.guest else 0
        return (behind - self.priority, self.seq, self.job_id)

    @property
    def role(self) -> Role:
        """What it is on its GPUs."""
        return Role.GUEST if self.guest else Role.OWNER

    @property
    def shape(self) -> str:
        """Jobs of the same shape fit in the same places."""
        spec = self.spec
        gpus, host = spec.gpus, f"/{spec.cpus or 0}/{spec.memory_bytes or 0}" if spec.is_host_bound else ""
        needs = self.needs
        beside = f"{host}/{','.join(needs)}" if needs else host
        if not gpus.types and not gpus.excluded_types:
            return f"{gpus.count}/{gpus.max_nodes}//{beside}"
        return f"{gpus.count}/{gpus.max_nodes}/{','.join(gpus.types)}/{','.join(gpus.excluded_types)}{beside}"

    @property
    def lasts(self) -> bool:
        """Whether its attempt has been placed and nothing is ending it; it may be suspended between two slices."""
        return self.phase is ACTIVE and not self.stopping and self.leaving is None

    @property
    def stays(self) -> bool:
        """Whether it holds GPUs and nothing is taking it off them."""
        # As `lasts`, in one: asked of every job in every round.
        return self.phase is ACTIVE and not (self.stopping or self.suspended) and self.leaving is None

    @property
    def wants_quota(self) -> bool:
        """Whether its user lets it use quota, and so be an owner."""
        return self.spec.job_class is not JobClass.OPPORTUNISTIC

    @property
    def awaits_quota(self) -> bool:
        """Whether it stands still until quota grants its attempt again, and takes no turns meanwhile."""
        return self.returns_to_quota and self.suspended and self.lasts

    def live_nodes(self) -> list[str]:
        """Nodes where the task has not ended."""
        return [task.node_id for task in self.gang if task.node_id not in self.tasks.exits]
