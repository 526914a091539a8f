"""The lines of a pass: which job leads each, and what the jobs that still wait are told at its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

from libs.contracts.features import POOLS, name_of
from libs.contracts.reasons import PendingReason
from libs.policies.queueing.policy import QueuePolicy
from services.placement.core.cell import Cell
from services.placement.core.cluster import gangs
from services.placement.core.cluster.servers import Servers
from services.placement.core.jobs import Job
from services.placement.core.lifecycle import waiting
from services.placement.core.lifecycle.placing import ALONE, InLine
from services.placement.core.lifecycle.plan import Plan
from services.placement.core.lifecycle.reservations import servers_open_to
from services.placement.core.mechanisms.queueing.suspended import waiting_to_return
from services.placement.core.mechanisms.queueing.weighing import Weighed

ONE_LINE = "all"
"""Where no job passes another one, all jobs stand in one line, but for trials that have a pool of their own: what they
get there no other job could, so these stand in another one. Elsewhere jobs of a shape do."""


@dataclass(frozen=True)
class Refused:
    """The first job of its shape that was looked at and not placed."""

    job: Job
    servers: Servers
    """What it may use."""
    fit: gangs.Fit | None
    """A place that it does not accept yet."""
    given: int
    """So many jobs had been given GPUs in the pass until then."""
    weighed: Weighed | None = None
    """Why it does not take the place that it accepts."""


class Lines:
    """One walk over the queue. Of the jobs that are not placed one leads each line, and the others are behind it."""

    def __init__(self, cell: Cell, policy: QueuePolicy) -> None:
        self._cell = cell
        self._in_one_line = not policy.later_jobs_may_pass
        self.acquires = policy.acquires
        """Whether jobs of a shape may accept more or less locality."""
        self._tries: dict[str, int] = {}
        """{shape: most tries of those that were refused}."""
        self.refused: dict[str, Refused] = {}
        """By shape, in the order of the walk."""
        self.blocked: dict[str, Job] = {}
        """{line: its first job that got nothing}, where no other may pass it; queued or suspended."""
        self.given = 0
        """So many jobs have been given GPUs."""

    def place_of_suspended(self, job: Job) -> InLine:
        """Where a suspended job stands that cannot go on: alone, because it goes on where it was, unless all wait for
        it."""
        return InLine(line=self._line_of(job), leads=True) if self._in_one_line else ALONE

    def may_pass(self, job: Job) -> bool:
        """Whether the job may be given GPUs: where none may pass another one, none of its line has been refused."""
        return not self.blocked or self._line_of(job) not in self.blocked

    def block(self, job: Job) -> None:
        """No job of its line may be given GPUs in this pass any more, where none may pass another one."""
        if self._in_one_line:
            self.blocked[self._line_of(job)] = job

    @property
    def is_over(self) -> bool:
        """Whether no job may be given GPUs any more."""
        return len(self.blocked) > (len(POOLS) if self._cell.set_apart else 0)

    def is_worth_a_look(self, job: Job) -> bool:
        """Whether the job may fit where those of its shape do not that have been refused: it has tried more often."""
        return job.shape not in self.refused or (self.acquires and self._tries_of(job) > self._tries[job.shape])

    def _tries_of(self, job: Job) -> int:
        made = self._cell.acquiring.get(job.job_id)
        return made.tries if made is not None else 0

    def refuse(self, job: Job, servers: Servers, fit: gangs.Fit | None, weighed: Weighed | None) -> None:
        """No other job of its shape is placed in this pass, unless it accepts more.

        Args:
            weighed: it waits for what it gains by that; others of its shape may gain less, and are looked at.
        """
        self.refused.setdefault(job.shape, Refused(job, servers, fit, self.given, weighed))
        if weighed is None:
            self._tries[job.shape] = self._tries_of(job)
        else:
            self._tries.setdefault(job.shape, -1)

    def told(self, now_s: float) -> Plan:
        """What the jobs that wait are told: those that lead what they wait for, the others that they are behind."""
        for each in self.refused.values():
            yield from self._leader_told(each, now_s)
        for job in sorted(self._out_of_place(), key=attrgetter("order")):
            if (leader := self._leader(job)) is not None:
                yield from waiting.told_behind(job, leader, self._line_of(job))

    def _leader_told(self, refused: Refused, now_s: float) -> Plan:
        """What was found is looked for again where others have been given GPUs since."""
        job, servers, fit = refused.job, refused.servers, refused.fit
        if refused.given != self.given:
            servers = servers_open_to(self._cell, job)
        if refused.given != self.given or self.acquires:  # what it accepts is not all that would be a place
            fit = gangs.best_fit(job.spec.gpus, servers)
        line, weighed = self._line_of(job), refused.weighed
        if weighed is not None and fit is not None:
            yield from waiting.told_that_it_waits(job, weighed.why_it_waits(fit, job.width), line)
        else:
            yield from waiting.told_why(self._cell, job, servers, fit, now_s, line)

    def _out_of_place(self) -> Iterator[Job]:
        """Jobs that lead no line and have not been told that they are behind another one; in any order."""
        for by_cause in self._cell.told.values():
            # Jobs of a shape have the same needs, and so the same side of the pools.
            leader = self._leader(self._cell.jobs[next(iter(next(iter(by_cause.values()))))])
            for cause, jobs in by_cause.items():
                if leader is not None and cause != PendingReason.BEHIND:
                    yield from (self._cell.jobs[job_id] for job_id in jobs if job_id != leader.job_id)
        for job in waiting_to_return(self._cell) if self.blocked else ():
            first = self.blocked.get(self._line_of(job), job)
            if job is not first and job.wait_code != PendingReason.BEHIND:
                yield job

    def _leader(self, job: Job) -> Job | None:
        """Of the job's line; None: the first of its shape could not be given what was found for it."""
        if self._in_one_line:
            return self.blocked.get(self._line_of(job))
        found = self.refused.get(job.shape)
        return found.job if found is not None else None

    def _line_of(self, job: Job) -> str:
        if not self._in_one_line:
            return job.shape
        pool = name_of(job.pool)
        return f"{ONE_LINE} of {pool}" if pool else ONE_LINE
