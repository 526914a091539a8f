"""What placement knows: nodes with the holders of each GPU, jobs, the queue, and what each mechanism remembers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import msgspec

from libs.contracts import settings
from libs.contracts.cluster import TaskPlacement
from libs.contracts.placement import OWNER, Lease, Share
from libs.policies.problem import PolicyOptions
from services.placement.core.cluster.nodes import Node
from services.placement.core.cluster.servers import Index, Servers
from services.placement.core.jobs import Job


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


class State(msgspec.Struct, kw_only=True, dict=True):
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

    @cached_property
    def index(self) -> Index:
        """What is free where. Derived of `nodes`, and no part of snapshots: `changed` keeps it up to date."""
        return Index(self.nodes)

    def changed(self, node_id: str) -> None:
        """The node is new, or what may be placed on it is other than before."""
        if "index" in self.__dict__:
            self.index.refresh(node_id)

    def servers(self, closed: Iterable[str] = ()) -> Servers:
        """The usable servers but for those that are closed."""
        return self.index.without(closed)

    def hold(self, job: Job, gang: list[TaskPlacement]) -> None:
        """These GPUs are the job's from now on."""
        for task in gang:
            for index in task.gpu_indices:
                self.nodes[task.node_id].gpus[index].holders.append(job.job_id)
            self.changed(task.node_id)

    def release(self, job: Job, gang: list[TaskPlacement]) -> None:
        """These GPUs are not the job's any more."""
        for task in gang:
            node = self.nodes[task.node_id]
            for index in task.gpu_indices:
                if index < len(node.gpus) and job.job_id in node.gpus[index].holders:
                    node.gpus[index].holders.remove(job.job_id)
            self.changed(task.node_id)
