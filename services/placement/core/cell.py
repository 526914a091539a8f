"""What placement knows of its cell, whichever mechanism is in force: nodes, jobs, the queue, settings.

A mechanism that remembers more has a struct of its own beside this one (`state.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import msgspec

from libs.contracts import settings
from libs.contracts.cluster import TaskPlacement
from libs.contracts.placement import OWNER
from libs.policies.problem import PolicyOptions
from libs.policies.table import DEFAULT_POLICY
from services.placement.core.book import Book
from services.placement.core.cluster.nodes import Node
from services.placement.core.cluster.servers import Index, Servers
from services.placement.core.jobs import Job


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """The turn that jobs have on over-subscribed servers."""

    number: int = 0
    ends_s: float = 0.0


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes on which free GPUs are kept for one gang, so that smaller jobs cannot starve it."""

    job_id: str
    node_ids: list[str]


class Settings(msgspec.Struct, kw_only=True):
    """What operators may change while jobs run; `libs/contracts/settings.py` says what each means."""

    locality_relax_s: float = settings.default(OWNER, "locality_relax_s")
    reserve_after_s: float = settings.default(OWNER, "reserve_after_s")
    round_s: float = settings.default(OWNER, "round_s")
    recompute_s: float = settings.default(OWNER, "recompute_s")
    stop_grace_s: float = settings.default(OWNER, "stop_grace_s")
    pack_trial_s: float = settings.default(OWNER, "pack_trial_s")
    pack_utilisation: float = settings.default(OWNER, "pack_utilisation")
    slice_s: float = settings.default(OWNER, "slice_s")
    max_height: float = settings.default(OWNER, "max_height")


class Knowledge(msgspec.Struct, kw_only=True):
    """How fast configurations train, alone and beside others, as far as it is known or guessed."""

    rates: dict[str, dict[str, float]] = {}
    """{configuration: {GPU type: steps per second}} as operators provided them."""
    pairs: dict[str, dict[str, dict[str, tuple[float, float]]]] = {}
    """{configuration: {configuration: {GPU type: steps per second of both}}}, each pair in both orders."""
    alike: dict[str, str] = {}
    """{configuration: the one of the operators' table that it is taken to be like}."""
    evidence: dict[str, int] = {}
    """{configuration: measured co-locations that its last estimate rests on}."""
    beside: dict[str, dict[str, dict[str, float]]] = {}
    """{configuration: {configuration: {GPU type: part of its own speed that it kept beside it}}}, as profiled."""
    version: int = 0
    """Counts what was learned about the rates of jobs and configurations: each time is a reset event."""


DOMAINS = "domains"
"""The name under which `lifecycle/suspending/domains.py` keeps them with a cell until nodes or gangs change."""


class Cell(msgspec.Struct, kw_only=True, dict=True):
    """Initially empty."""

    nodes: dict[str, Node] = {}
    jobs: dict[str, Job] = {}
    queue: dict[str, list[tuple[int, int, str]]] = {}
    """{shape: orders of the queued jobs that are not held, ascending}."""
    reservation: Reservation | None = None
    book: Book = msgspec.field(default_factory=Book)
    slices: dict[str, Slice] = {}
    """{first server of a domain: its latest time slice}."""
    known: Knowledge = msgspec.field(default_factory=Knowledge)
    policy: str = DEFAULT_POLICY
    options: PolicyOptions = PolicyOptions()
    cost_per_hour: dict[str, float] = {}
    tenant_weights: dict[str, float] = {}
    settings: Settings = msgspec.field(default_factory=Settings)
    next_seq: int = 0
    looked_s: float = 0.0
    """Up to when the passing of time has been taken into account: by a timer, or by a pass that has placed a job."""

    @cached_property
    def index(self) -> Index:
        """What is free where. Derived of `nodes`, and no part of snapshots: `changed` keeps it up to date."""
        return Index(self.nodes)

    def changed(self, node_id: str) -> None:
        """The node is new, or what may be placed on it is other than before."""
        self.__dict__.pop(DOMAINS, None)
        if "index" in self.__dict__:
            self.index.refresh(node_id)

    def servers(self, closed: Iterable[str] = ()) -> Servers:
        """The usable servers but for those that are closed."""
        return self.index.without(closed)

    @cached_property
    def residents(self) -> dict[str, dict[str, None]]:
        """{node id: jobs with an attempt there, running or suspended}. Derived of `jobs`, as `index` is of `nodes`."""
        found: dict[str, dict[str, None]] = {}
        for job in self.jobs.values():
            for task in job.gang:
                found.setdefault(task.node_id, {})[job.job_id] = None
        return found

    @cached_property
    def untold(self) -> dict[str, None]:
        """Jobs on the queue that have not been told why they wait. Derived of `queue` and `jobs`."""
        queued = (job_id for orders in self.queue.values() for _, _, job_id in orders)
        return {job_id: None for job_id in queued if not self.jobs[job_id].wait_code}

    def give(self, job: Job, gang: list[TaskPlacement]) -> None:
        """The gang is where the job's attempt is from now on; an empty one ends it."""
        self.__dict__.pop(DOMAINS, None)
        if "residents" in self.__dict__:
            for task in job.gang:
                del self.residents[task.node_id][job.job_id]
            for task in gang:
                self.residents.setdefault(task.node_id, {})[job.job_id] = None
        job.gang = gang

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
