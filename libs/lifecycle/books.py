"""What a job's life adds up to: GPU time, waits by cause, its latest attempt. Booked along with the fold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby

import msgspec

from libs.contracts.base import Event
from libs.contracts.cluster import TaskPlacement
from libs.contracts.placement import JobQueued
from libs.contracts.reasons import PendingReason, Reason
from libs.lifecycle.moment import At
from libs.lifecycle.shares import Shares
from libs.lifecycle.waits import Lines, Wait, at_most, cause_of

NOT_FOR_GPUS = frozenset(
    {
        "",
        PendingReason.ON_HOLD,
        PendingReason.DEPENDENCY_NOT_MET,
        PendingReason.ARRAY_LIMIT,
        PendingReason.BACKOFF,
        PendingReason.NOT_YET_EVALUATED,
    }
)
"""Causes of a wait that is neither fair-share nor fragmentation delay: the job does not ask for GPUs yet."""


@dataclass(frozen=True)
class Queues:
    """What the waits of a cell's jobs have to do with each other: lines, and the quotas of tenants."""

    lines: Lines = field(default_factory=Lines)
    shares: Shares = field(default_factory=Shares)


class Attempt(msgspec.Struct, kw_only=True):
    """One placed attempt."""

    job_id: str
    number: int
    gang: list[TaskPlacement]
    """As it was placed; time slices may give it other GPUs of the same servers later."""
    reason: Reason
    """Why there."""
    placed_s: float
    started_s: float | None = None
    """When none of its tasks was on its way any more; of a moved job, when it moved."""
    ended_s: float | None = None
    """When its end was decided; the first word stands."""
    outcome: str = ""
    """`succeeded`, `failed`, `preempted`, `moved`, `tried` (the job's trial ended well) or `cancelled`; empty while
    none is decided."""
    released_s: float | None = None
    """When placement took its GPUs back. A preempted attempt has them from `ended_s` until then."""
    released_by: str = ""
    """Class name of the event that took them."""
    began: int = 0
    """Its place among all beginnings on the log."""


class Holding(msgspec.Struct, kw_only=True):
    """A stretch of time in which a job had one and the same gang, by placement's word."""

    job_id: str
    tenant: str
    gang: list[TaskPlacement]
    widths: list[tuple[str, int]]
    """(GPU type, GPUs of it) of each task, in order of tasks."""
    begin_s: float
    end_s: float | None = None
    began: int = 0
    """Its place among all beginnings on the log."""

    @property
    def gpus(self) -> int:
        """How many its gang has."""
        return sum(gpus for _, gpus in self.widths)


class Suspension(msgspec.Struct, kw_only=True):
    """From one JobSuspended to the next JobResumed or JobExited of any task of the job.

    A gang on several nodes begins one per node, of which the last alone is ended by that.
    """

    begin_s: float
    end_s: float | None = None
    """None: it stands still now."""
    delay_s: float
    """From the order to the boundary."""
    parked_bytes: int


class Books(msgspec.Struct, kw_only=True, dict=True):
    """The sums of one life, up to `since_s`; whole where the log has been folded from its beginning."""

    state_since_s: float = 0.0
    since_s: float = 0.0
    """When the present time with or without GPUs, or the present cause of waiting, began."""
    held_since_s: float = 0.0
    """Up to when the GPU time of the present holding is booked."""
    is_placed: bool = False
    """Placement has given the job GPUs and has not taken them back, were it only to suspend it between time slices."""
    holding: Holding | None = None
    """The gang that it has now; None while it waits and between time slices."""
    attempt: Attempt | None = None
    """The latest that was placed."""
    started: dict[str, None] = {}
    """Nodes that have started their task of the attempt."""
    wait: Wait = msgspec.field(default_factory=Wait)
    """Why it waits now; a suspended job, too, although its time is no wait."""
    tenant: str = ""
    gpus: int = 0
    """Asked for."""
    is_owner: bool = True
    """Its GPUs count for its tenant: it is no guest."""
    waits_s: dict[str, float] = {}
    """{cause: part of `queue_s`}; together all of it. A job that was behind another one has waited for what that one
    waited for."""
    in_trial: bool = False
    """The attempts of the job are its trial: until that is over, its wait counts as one for the trial."""
    gpu_s: float = 0.0
    """GPUs of all holdings, times how long."""
    gpu_s_by_type: dict[str, float] = {}
    gpu_s_by_attempt: dict[int, float] = {}
    """{number of an attempt: part of `gpu_s`}, of attempts that were placed."""
    retries: int = 0
    """How often it was to be tried again after a failure."""
    queue_s: float = 0.0
    """Time without a placed attempt, from submission to the end."""
    fair_share_s: float = 0.0
    """Part of `queue_s` for which what its tenant's jobs held, and what it asked for, was more than the tenant's quota,
    while it asked for GPUs (`shares.py`)."""
    fragmentation_s: float = 0.0
    """The rest of the time for which it asked for GPUs and had none."""
    waited_s: dict[str, float] = {}
    """{cause: seconds}, of `wait` when the time was booked last."""
    over_s: float = 0.0
    """The same of `Shares.over_s`."""
    starts: int = 0
    """How often it was placed."""
    starts_out_of_order: int = 0
    """How often before a waiting job that comes before it in the queue, as far as the policy says so."""
    starts_delaying: int = 0
    """How often that delayed such a job."""
    first_task_s: float | None = None
    """When the first task of any attempt ran."""
    whole_gang_s: float | None = None
    """When, for the first time, every task of an attempt had been started; not when one had ended before it began."""
    migrations: int = 0
    """Moves that were told complete, also behind the end of the job."""
    suspension: Suspension | None = None
    """The latest."""

    @property
    def queues(self) -> Queues | None:
        """Of its cell, and in no snapshot; None: the job is looked at alone, and nothing is known of others."""
        queues: Queues | None = self.__dict__.get("queues")
        return queues

    def enter(self, queues: Queues, now_s: float) -> None:
        """The job is one of a cell's from now on."""
        self.__dict__["queues"] = queues
        queues.lines.add(self.wait)
        self.over_s = self._over_s(now_s)

    def book(self, now_s: float) -> None:
        """Add the time since the last change to what it was spent on."""
        if self.holding is None and self.wait.behind is None and now_s == self.since_s:
            return  # with another change of the same moment
        if self.holding is not None:
            # Events of different services may stand on the log a little out of the order of time: what was counted too
            # much by the later time is taken back, so that a stretch counts from its placement to its release.
            held_s, self.held_since_s = now_s - self.held_since_s, now_s
            number = self.attempt.number if self.attempt is not None else 0
            for gpu_type, gpus in self.holding.widths:
                gpu_s = held_s * gpus
                self.gpu_s_by_attempt[number] = self.gpu_s_by_attempt.get(number, 0.0) + gpu_s
                self.gpu_s += gpu_s
                self.gpu_s_by_type[gpu_type] = self.gpu_s_by_type.get(gpu_type, 0.0) + gpu_s
        now_s = max(now_s, self.since_s)
        passed_s, self.since_s = now_s - self.since_s, now_s
        waited_s, over_s = self.wait.sums(now_s), self._over_s(now_s)
        if not self.is_placed:
            self.queue_s += passed_s
            self.waits_s = self._waits_with(waited_s)
            if not (self.wait.is_held or self.in_trial) and self.wait.cause not in NOT_FOR_GPUS:
                fair_share_s = min(over_s - self.over_s, passed_s)
                self.fair_share_s += fair_share_s
                self.fragmentation_s += passed_s - fair_share_s
        self.waited_s, self.over_s = waited_s, over_s

    def _over_s(self, now_s: float) -> float:
        queues = self.queues
        return queues.shares.over_s(self.tenant, self.gpus, now_s) if queues is not None else 0.0

    def _waits_with(self, waited_s: Mapping[str, float]) -> dict[str, float]:
        found, gained = dict(self.waits_s), dict[str, float]()
        for cause, sum_s in waited_s.items():
            if (gained_s := sum_s - self.waited_s.get(cause, 0.0)) > 0:
                gained[cause] = gained_s
        for cause, gained_s in at_most(gained, sum(waited_s.values()) - sum(self.waited_s.values())).items():
            counted = self.counted(cause)
            found[counted] = found.get(counted, 0.0) + gained_s
        return found

    def counted(self, cause: str) -> str:
        """The cause for which a wait counts: of a job in its trial that is the trial, unless its user has paused it."""
        return PendingReason.TRIAL_PENDING if self.in_trial and cause != PendingReason.ON_HOLD else cause

    def waits_until(self, now_s: float) -> dict[str, float]:
        """`waits_s` up to now, with the present wait; nothing is booked."""
        return dict(self.waits_s) if self.is_placed else self._waits_with(self.wait.sums(now_s))

    def gpu_s_until(self, now_s: float) -> float:
        """GPU seconds up to now, those of the present holding among them; nothing is booked."""
        gpus = self.holding.gpus if self.holding is not None else 0
        return self.gpu_s + gpus * max(0.0, now_s - self.held_since_s)

    def waits(self, cause: str, now_s: float) -> None:
        """The job waits, from now on for this cause."""
        self.book(now_s)
        self.wait.waits(cause, now_s)

    def stands(self, event: JobQueued, now_s: float) -> None:
        """It waits for GPUs, alone or in a line."""
        self.book(now_s)
        if self.queues is not None:
            self.queues.lines.take(self.wait, event, now_s)
        else:
            self.wait.waits(cause_of(event), now_s)

    def holds(self, now_s: float, *, held: bool) -> None:
        """Its user has paused it, or lets it go on."""
        self.book(now_s)
        self.wait.hold(now_s, held=held)

    def tries(self, now_s: float, *, in_trial: bool) -> None:
        """Its trial begins, or is over."""
        self.book(now_s)
        self.in_trial = in_trial

    def counts(self, now_s: float, *, as_owner: bool) -> None:
        """Whether its GPUs count for its tenant from now on."""
        held = self.holding.gpus if self.holding is not None else 0
        if self.is_owner != as_owner and held:
            self._use(held if as_owner else -held, now_s)
        self.is_owner = as_owner

    def _use(self, gpus: int, now_s: float) -> None:
        if self.queues is not None:
            self.queues.shares.use(self.tenant, gpus, now_s)

    def hold(self, job_id: str, tenant: str, gang: list[TaskPlacement], at: At) -> None:
        """The job has this gang from now on, instead of any other."""
        self.stand_aside(at)
        self.is_placed, self.held_since_s = True, at.time_s
        self.wait.waits("", at.time_s)
        self.holding = Holding(
            job_id=job_id,
            tenant=tenant,
            gang=gang,
            widths=[width for task in gang for width in _widths(task, at.gpu_types.get(task.node_id, {}))],
            begin_s=at.time_s,
            began=at.number,
        )
        if self.is_owner:
            self._use(self.holding.gpus, at.time_s)

    def stand_aside(self, at: At) -> None:
        """The job has no GPUs from now on; its attempt goes on."""
        self.book(at.time_s)
        if self.holding is not None:
            self.holding.end_s = at.time_s
            at.closed.append(self.holding)
            if self.is_owner:
                self._use(-self.holding.gpus, at.time_s)
            self.holding = None

    def begin(self, attempt: Attempt) -> None:
        """The attempt is the latest from now on."""
        self.attempt = attempt

    def decide(self, number: int, outcome: str, now_s: float) -> None:
        """How the attempt ends is known; the first word stands."""
        if self.attempt is not None and self.attempt.number == number and not self.attempt.outcome:
            self.attempt.ended_s, self.attempt.outcome = now_s, outcome

    def release(self, event: Event, at: At) -> None:
        """Placement takes the GPUs of the latest attempt back, if it has any."""
        if not self.is_placed:
            return
        self.stand_aside(at)
        self.is_placed = False
        if self.attempt is not None:
            self.attempt.released_s, self.attempt.released_by = at.time_s, type(event).__name__
            at.closed.append(self.attempt)


def _widths(task: TaskPlacement, gpu_types: Mapping[int, str]) -> list[tuple[str, int]]:
    """(GPU type, GPUs of it) of one task; a GPU that never joined has an empty type."""
    types = groupby(gpu_types.get(index, "") for index in task.gpu_indices)
    return [(gpu_type, len(list(gpus))) for gpu_type, gpus in types]
