"""What a job's life adds up to: GPU time, waits by cause, its latest attempt. Booked along with the fold."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

import msgspec

from libs.contracts.base import Event
from libs.contracts.cluster import TaskPlacement
from libs.contracts.reasons import PendingReason, Reason
from libs.lifecycle.moment import At

FAIR_SHARE_CODES = frozenset({PendingReason.EXCEEDS_QUOTA, PendingReason.FAIR_SHARE})
"""Causes of a wait that count as fair-share delay."""
FRAGMENTATION_CODES = frozenset({PendingReason.GANG_FRAGMENTED, PendingReason.LOCALITY_RELAXING})
"""Causes of a wait that count as fragmentation delay."""


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


class Books(msgspec.Struct, kw_only=True):
    """The sums of one life, up to `since_s`; whole where the log has been folded from its beginning."""

    state_since_s: float = 0.0
    since_s: float = 0.0
    """When the present time with or without GPUs, or the present cause of waiting, began."""
    is_placed: bool = False
    """Placement has given the job GPUs and has not taken them back, were it only to suspend it between time slices."""
    holding: Holding | None = None
    """The gang that it has now; None while it waits and between time slices."""
    attempt: Attempt | None = None
    """The latest that was placed."""
    started: dict[str, None] = {}
    """Nodes that have started their task of the attempt."""
    in_trial: bool = False
    """The attempts of the job are its trial: until that is over it waits for nothing else."""
    cause: str = ""
    """Reason code of the present wait; empty while none is named."""
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
    """Part of `queue_s` for which quota or the share was named as the cause."""
    fragmentation_s: float = 0.0
    """Part of `queue_s` for which fragmentation or locality was named as the cause."""
    first_task_s: float | None = None
    """When the first task of any attempt ran."""
    whole_gang_s: float | None = None
    """When, for the first time, every task of an attempt had been started; not when one had ended before it began."""
    migrations: int = 0
    """Moves that were told complete, also behind the end of the job."""
    suspension: Suspension | None = None
    """The latest."""

    def book(self, now_s: float) -> None:
        """Add the time since the last change to what it was spent on."""
        passed_s, self.since_s = max(0.0, now_s - self.since_s), now_s
        if self.holding is not None:
            number = self.attempt.number if self.attempt is not None else 0
            for gpu_type, gpus in self.holding.widths:
                gpu_s = passed_s * gpus
                self.gpu_s_by_attempt[number] = self.gpu_s_by_attempt.get(number, 0.0) + gpu_s
                self.gpu_s += gpu_s
                self.gpu_s_by_type[gpu_type] = self.gpu_s_by_type.get(gpu_type, 0.0) + gpu_s
        elif not self.is_placed:
            self.queue_s += passed_s
            if self.cause in FAIR_SHARE_CODES:
                self.fair_share_s += passed_s
            elif self.cause in FRAGMENTATION_CODES:
                self.fragmentation_s += passed_s

    def gpu_s_until(self, now_s: float) -> float:
        """GPU seconds up to now, those of the present holding among them; nothing is booked."""
        gpus = sum(width for _, width in self.holding.widths) if self.holding is not None else 0
        return self.gpu_s + gpus * max(0.0, now_s - self.since_s)

    def waits(self, cause: str, now_s: float) -> None:
        """The job waits, from now on for this cause, or for its trial, which comes first."""
        self.book(now_s)
        self.cause = PendingReason.TRIAL_PENDING if self.in_trial else cause

    def hold(self, job_id: str, tenant: str, gang: list[TaskPlacement], at: At) -> None:
        """The job has this gang from now on, instead of any other."""
        self.stand_aside(at)
        self.is_placed, self.cause = True, ""
        self.holding = Holding(
            job_id=job_id,
            tenant=tenant,
            gang=gang,
            widths=[width for task in gang for width in _widths(task, at.gpu_types.get(task.node_id, {}))],
            begin_s=at.time_s,
            began=at.number,
        )

    def stand_aside(self, at: At) -> None:
        """The job has no GPUs from now on; its attempt goes on."""
        self.book(at.time_s)
        if self.holding is not None:
            self.holding.end_s = at.time_s
            at.closed.append(self.holding)
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
