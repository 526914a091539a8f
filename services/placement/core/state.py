"""What placement knows: nodes with the holder of each GPU, jobs with their phase, the queue, the reservation.

Phases of a job (table and picture in the README):

    ARRIVED ──admitted──> WAITING ──granted──> QUEUED ──placed──> ACTIVE ──all tasks exited──> gone
                             ▲                   ▲                  │ preempted: next attempt      (succeeded,
                             │                   └──────────────────┤                               cancelled)
                             └──── retry ──── FAILED <── badly ─────┘
"""

from __future__ import annotations

from bisect import insort
from enum import StrEnum

import msgspec

from libs.contracts import settings
from libs.contracts.cluster import PortRange, TaskPlacement, width_of
from libs.contracts.jobs import GpuRequest, JobSpec
from libs.contracts.placement import OWNER, Lease, Share
from libs.contracts.reasons import Reason
from libs.policies.allocation.problem import PolicyOptions


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


ACTIVE = Phase.ACTIVE
"""Looked at for every job in every round: Python 3.11 runs a descriptor for each look at a member of an enum."""


class TaskExit(msgspec.Struct, frozen=True, kw_only=True):
    """How a task ended."""

    exit_code: int | None
    signal: int | None
    outcome: str
    stderr_tail: str = ""

    @property
    def good(self) -> bool:
        """Whether the task did what it should."""
        return self.outcome == "exited" and self.exit_code == 0


class Cancellation(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody wants the job gone."""

    requested_by: str
    grace_s: float


class Move(msgspec.Struct, kw_only=True):
    """A live move: the job's next attempt is being made ready elsewhere to take over the state of this one."""

    migration_id: str
    attempt: int
    gang: list[TaskPlacement]
    since_s: float
    reason: Reason
    started: list[str] = []
    """Nodes of the destination whose task has reported its start."""
    ready: list[str] = []
    """Those that wait for their state."""
    restored: list[str] = []
    """Those that have it."""
    gone: dict[str, None] = {}
    """Those whose task has ended."""
    halted: bool = False
    """The source has been ordered to stand still."""
    fetching: bool = False
    """The destination has been ordered to fetch its state."""

    @property
    def width(self) -> int:
        """GPUs that the job has afterwards."""
        return width_of(self.gang)

    @property
    def is_ready(self) -> bool:
        """Whether all of the destination's tasks wait for their state."""
        return len(self.ready) == len(self.gang)

    @property
    def is_restored(self) -> bool:
        """Whether all of them have it."""
        return len(self.restored) == len(self.gang)


class Job(msgspec.Struct, kw_only=True):
    """A job that has not ended."""

    job_id: str
    spec: JobSpec
    seq: int
    """Order of arrival."""
    priority: int
    phase: Phase = Phase.ARRIVED
    attempt: int = 0
    queued_since_s: float = 0.0
    """When it first waited for GPUs since it last ran; counts for relaxation and reservation."""
    held: bool = False
    """Paused by its user."""
    cancellation: Cancellation | None = None
    wait_code: str = ""
    """Code of the last JobQueued of this attempt; empty before the first."""
    gang: list[TaskPlacement] = []
    started: list[str] = []
    """Nodes whose task has reported its start."""
    exits: dict[str, TaskExit] = {}
    """{node id: how its task ended}, in order of ending."""
    leaving: Reason | None = None
    """Why the attempt was preempted; its tasks are being stopped."""
    stopping: bool = False
    """Every task of the attempt is being stopped: it is cancelled or preempted, or a task has ended badly."""
    arrived_s: float = 0.0
    charged_s: float = 0.0
    """While its attempt lasts: up to when its time on GPUs has been booked."""
    attained_s: float = 0.0
    """Time that it has held GPUs, up to then."""
    gpu_type: str = ""
    """Of the GPUs that it holds."""
    pace: float = 0.0
    """Steps per second there, with what is packed with it."""
    steps_done: float = 0.0
    """By its rate and the time that it held GPUs."""
    measured: dict[str, float] = {}
    """{GPU type: steps per second} as profiled there last."""
    suspended: bool = False
    """Between two of its time slices: it holds no GPUs, and its gang says where it was."""
    served_s: float = 0.0
    """Time on GPUs that it has had, per unit of its weight, up to when it began to run last."""
    running_since_s: float | None = None
    """Since when its time on GPUs counts; None while it does not."""
    utilisation: float | None = None
    """Part of its GPUs that it uses alone, as profiled last."""
    memory_peak_bytes: int = 0
    """Of one of its GPUs, as profiled last."""
    awaited: bool = False
    """Its agents have not said yet that it runs on the GPUs that it was given last."""
    movable: dict[str, None] = {}
    """Nodes whose task can hand over its state."""
    resizable: dict[str, None] = {}
    """Those whose task can hand it over to more or fewer processes, too."""
    still: dict[str, None] = {}
    """Nodes whose task stands still, as they have reported."""
    move: Move | None = None
    must_leave: Reason | None = None
    """Why it must not stay where it is, if its move fails."""
    last_attempt: int = 0
    """The highest number that has been given to an attempt for a move."""

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
        """Its place in the queue: higher priority first, then in order of arrival."""
        return (-self.priority, self.seq, self.job_id)

    @property
    def shape(self) -> str:
        """Jobs of the same shape fit in the same places."""
        gpus = self.spec.gpus
        return f"{gpus.count}/{gpus.max_nodes}/{','.join(gpus.types)}/{','.join(gpus.excluded_types)}"

    @property
    def lasts(self) -> bool:
        """Whether its attempt has been placed and nothing is ending it; it may be suspended between two slices."""
        return self.phase is ACTIVE and not self.stopping and self.leaving is None

    @property
    def stays(self) -> bool:
        """Whether it holds GPUs and nothing is taking it off them."""
        return self.lasts and not self.suspended

    def live_nodes(self) -> list[str]:
        """Nodes whose task has not ended."""
        return [task.node_id for task in self.gang if task.node_id not in self.exits]


class Gpu(msgspec.Struct, kw_only=True):
    """One GPU of a node."""

    gpu_type: str
    memory_bytes: int = 0
    holders: list[str] = []
    """Ids of the jobs that hold it; several only where a policy packs them."""


class Node(msgspec.Struct, kw_only=True):
    """A node that has joined at least once."""

    node_id: str
    incarnation: int
    address: str
    rack: str
    gpus: list[Gpu]
    healthy: dict[str, list[int]]
    """{GPU type: indices of those that work, ascending}."""
    ports: PortRange
    next_port: int
    present: bool = True
    """False after NodeLost or NodeLeft, until it joins again."""
    draining: bool = False
    remaps: bool = False
    """Whether suspended tasks may be resumed on other GPUs of the node."""
    state_port: int = 0
    """Where its agent gives out the states of tasks that move."""

    @property
    def usable(self) -> bool:
        """Whether new work may be placed here."""
        return self.present and not self.draining

    def free(self, gpu_type: str) -> list[int]:
        """Indices of the healthy free GPUs of a type, ascending."""
        return [index for index in self.healthy.get(gpu_type, ()) if not self.gpus[index].holders]

    def capacity(self, gpu_type: str) -> int:
        """Healthy GPUs of a type, held or free."""
        return len(self.healthy.get(gpu_type, ()))

    def is_healthy(self, index: int) -> bool:
        """Whether this GPU works."""
        return index in self.healthy.get(self.gpus[index].gpu_type, ())

    def set_health(self, index: int, *, healthy: bool) -> None:
        """A GPU fails or recovers."""
        working = self.healthy.setdefault(self.gpus[index].gpu_type, [])
        if healthy and index not in working:
            insort(working, index)
        elif not healthy and index in working:
            working.remove(index)


class Rounds(msgspec.Struct, kw_only=True):
    """How the latest allocation is being realised (Gavel, section 5)."""

    shares: list[Share]
    question: str
    """Fingerprint of the problem that `shares` answer."""
    rows: dict[str, list[int]] = {}
    """{job id: places of its rows in `shares`}."""
    computed_s: float
    booked_s: float
    """Up to when shares have been turned into credit."""
    credit: dict[str, dict[str, float]] = {}
    """{row: {GPU type: seconds that its share promised and it has not had}}, as `shares` have them and in their order;
    a row is one job or two."""
    number: int = 0
    ends_s: float = 0.0
    crowded: dict[str, float] = {}
    """{job id: part of its share that its home can give}, of the jobs at home where not everybody can have all."""
    packs: dict[str, str] = {}
    """{job id: the job that it shares its GPUs with in this round}, both ways."""
    plan: dict[str, Lease] = {}
    """{job id: the place that it gets when the tasks that must go have ended}."""
    beyond: dict[str, None] = {}
    """Jobs on GPUs that no share claims: this time is not charged."""


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """The turn that jobs have on over-subscribed servers."""

    number: int = 0
    ends_s: float = 0.0


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes whose free GPUs are kept for one gang, so that smaller jobs cannot starve it."""

    job_id: str
    node_ids: list[str]


class State(msgspec.Struct, kw_only=True):
    """Initially empty."""

    nodes: dict[str, Node] = {}
    jobs: dict[str, Job] = {}
    queue: dict[str, list[tuple[int, int, str]]] = {}
    """{shape: orders of the queued jobs that are not held, ascending}."""
    reservation: Reservation | None = None
    policy: str = "backfill"
    options: PolicyOptions = PolicyOptions()
    cost_per_hour: dict[str, float] = {}
    rounds: Rounds | None = None
    """None under a queue policy, and before the first allocation."""
    asked: str = ""
    """The question to which AllocationComputed is awaited; empty: none."""
    rates: dict[str, dict[str, float]] = {}
    """{configuration: {GPU type: steps per second}} as operators provided them."""
    pair_rates: dict[str, dict[str, dict[str, tuple[float, float]]]] = {}
    """{configuration: {configuration: {GPU type: steps per second of both}}}, each pair in both orders."""
    alike: dict[str, str] = {}
    """{configuration: the one of the operators' table that it is taken to be like}."""
    evidence: dict[str, int] = {}
    """{configuration: measured co-locations that its last estimate rests on}."""
    packed: dict[str, dict[str, dict[str, float]]] = {}
    """{configuration: {configuration: {GPU type: part of its own speed that it kept beside it}}}, as profiled."""
    knowledge: int = 0
    """Counts what was learned about the rates of jobs and configurations: each time is a reset event."""
    tenant_weights: dict[str, float] = {}
    next_seq: int = 0
    looked_s: float = 0.0
    """Up to when the passing of time has been taken into account: by a timer, or by a pass that has placed a job."""
    locality_relax_s: float = settings.default(OWNER, "locality_relax_s")
    reserve_after_s: float = settings.default(OWNER, "reserve_after_s")
    round_s: float = settings.default(OWNER, "round_s")
    recompute_s: float = settings.default(OWNER, "recompute_s")
    stop_grace_s: float = settings.default(OWNER, "stop_grace_s")
    slices: dict[str, Slice] = {}
    """{first server of a domain: its latest time slice}."""
    partners: dict[str, str] = {}
    """{job id: the job that shares its GPUs under a policy with slices}, both ways."""
    trials: dict[str, None] = {}
    """Packed jobs that there is no verdict about yet."""
    misfits: dict[str, None] = {}
    """Pairs that did less together than by turns."""
    pack_trial_s: float = settings.default(OWNER, "pack_trial_s")
    pack_utilisation: float = settings.default(OWNER, "pack_utilisation")
    slice_s: float = settings.default(OWNER, "slice_s")
    max_height: float = settings.default(OWNER, "max_height")

    def hold(self, job: Job, gang: list[TaskPlacement]) -> None:
        """These GPUs are the job's from now on."""
        for task in gang:
            for index in task.gpu_indices:
                self.nodes[task.node_id].gpus[index].holders.append(job.job_id)

    def release(self, job: Job, gang: list[TaskPlacement]) -> None:
        """These GPUs are not the job's any more."""
        for task in gang:
            node = self.nodes[task.node_id]
            for index in task.gpu_indices:
                if index < len(node.gpus) and job.job_id in node.gpus[index].holders:
                    node.gpus[index].holders.remove(job.job_id)
