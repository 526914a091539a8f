"""What jobs wait for, and for how long by cause; a job that is behind another one waits for what that one waits for.

A line is led by one job at a time, and the others of it are told once that they are behind (`JobQueued.line`). So their
seconds are not booked at each change of the leader's cause: a `Wait` that is behind another one takes over what the
other one has gained meanwhile, when it is asked.
"""

from __future__ import annotations

import msgspec

from libs.contracts.placement import JobQueued
from libs.contracts.reasons import CAUSES, PendingReason

Seconds = dict[str, float]
"""{cause: seconds}."""
ROUNDED_S = 1e-6
"""Events tell the time as exactly as this: less than that between two sums of seconds is the error of adding them."""


def at_most(gained: Seconds, total_s: float) -> Seconds:
    """Seconds by cause without those that are more than so many together, the last ones first.

    Where events stand on the log out of the order of time, a cause that is heard of late may have been given seconds
    that were counted for another before.
    """
    if sum(gained.values()) - total_s <= ROUNDED_S:
        return gained
    found, left_s = Seconds(), total_s
    for cause, gained_s in gained.items():
        found[cause] = min(gained_s, max(0.0, left_s))
        left_s -= gained_s
    return {cause: gained_s for cause, gained_s in found.items() if gained_s > 0}


class Wait(msgspec.Struct, kw_only=True, eq=False):
    """What a job, or the leader of a line, waits for; the causes of `PendingReason` and their seconds so far."""

    job_id: str = ""
    """Empty: of a line."""
    cause: str = ""
    """As it was said last; empty while it does not wait."""
    behind: Wait | None = None
    """What it waits for is what this one waits for; never in a circle."""
    is_held: bool = False
    """Its user has paused it: that outweighs every other cause."""
    since_s: float = 0.0
    before_s: Seconds = {}
    """Its seconds up to `since_s`."""
    theirs_s: Seconds = {}
    """What the one that it is behind had at `since_s`."""

    def sums(self, now_s: float) -> Seconds:
        """Its seconds by cause up to now."""
        found = dict(self.before_s)
        for cause, gained_s in self._gained(now_s).items():
            found[cause] = found.get(cause, 0.0) + gained_s
        return found

    def _gained(self, now_s: float) -> Seconds:
        """Since `since_s`. Events of different services may stand on the log a little out of the order of time: what
        the one before has not waited for by its own clock, counts for what it waits for now."""
        passed_s = now_s - self.since_s
        if passed_s <= 0 or not (self.is_held or self.cause):
            return {}
        if self.is_held or self.behind is None:
            return {self.present: passed_s}
        theirs = self.behind.sums(now_s)
        gained = {cause: sum_s - self.theirs_s.get(cause, 0.0) for cause, sum_s in theirs.items()}
        gained = at_most({cause: gained_s for cause, gained_s in gained.items() if gained_s > 0}, passed_s)
        rest_s = passed_s - sum(gained.values())
        if rest_s > ROUNDED_S:
            cause = self.root.cause or PendingReason.NOT_YET_EVALUATED
            gained[cause] = gained.get(cause, 0.0) + rest_s
        return gained

    def waits(self, cause: str, now_s: float, behind: Wait | None = None) -> None:
        """From now on for this cause, or for that of the one that goes first; an empty cause: it does not wait."""
        self._settle(now_s)
        self.cause = cause
        self.behind = behind if behind is not None and not behind.is_after(self) else None
        self.theirs_s = self.behind.sums(self.since_s) if self.behind is not None else {}

    def hold(self, now_s: float, *, held: bool) -> None:
        """Its user has paused it, or lets it go on."""
        self._settle(now_s)
        self.is_held = held

    def _settle(self, now_s: float) -> None:
        self.before_s, self.since_s = self.sums(now_s), max(now_s, self.since_s)
        if self.behind is not None:
            self.theirs_s = self.behind.sums(self.since_s)

    def is_after(self, other: Wait) -> bool:
        """Whether it is the other one, or waits for what that one waits for."""
        here: Wait | None = self
        while here is not None and here is not other:
            here = here.behind
        return here is other

    @property
    def present(self) -> str:
        """The cause that counts now."""
        return PendingReason.ON_HOLD if self.is_held else self.cause

    @property
    def root(self) -> Wait:
        """The one at the head, which is behind no other: its cause is what all behind it wait for."""
        here = self
        while here.behind is not None and not here.is_held:
            here = here.behind
        return here


class Lines:
    """The waits of a cell: those of its jobs by id, and of the lines in which they stand."""

    def __init__(self) -> None:
        self._jobs: dict[str, Wait] = {}
        self._lines: dict[str, Wait] = {}

    def add(self, wait: Wait) -> None:
        """A job has arrived: its wait may be that of jobs behind it."""
        self._jobs[wait.job_id] = wait

    def take(self, wait: Wait, event: JobQueued, now_s: float) -> None:
        """The job waits, alone or in a line, and leads it or is behind another job."""
        line, cause = self._lines.get(event.line), cause_of(event)
        if event.leads or not event.line:
            wait.waits(cause, now_s, self._jobs.get(event.behind))
        else:
            wait.waits(cause, now_s, line)
        if event.leads:
            line = self._lines.setdefault(event.line, Wait())
            line.waits(cause, now_s, wait)


def cause_of(event: JobQueued) -> str:
    """What the job waits for, or its trial. One that is queued again is told first why it has left its GPUs."""
    cause = event.waits_for or event.reason.code
    return cause if cause in CAUSES else PendingReason.NOT_YET_EVALUATED
