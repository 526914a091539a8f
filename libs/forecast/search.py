"""What would start a waiting job at the next decision: changes that are tried on branches of the present."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from libs.forecast.branch import Branch, Spare, without_collection
from libs.forecast.changes import Change, Kind, later
from libs.forecast.remedies import Way, for_it, remedy, waits_for_time
from libs.kernel.present import Present

MOST_CHANGES = 12
"""A longer list helps nothing that reads it."""
MOST_TRIED = 48
"""Changes that are tried on all ways together: so many decisions, and the same ones on any machine."""
WAYS = tuple(Way)


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """Changes after which the job starts at the next decision, in the order in which they happen."""

    way: Way
    changes: tuple[Change, ...]

    @property
    def size(self) -> tuple[int, int]:
        """Smaller is less: the number of changes, and of the GPUs that jobs give back or servers bring."""
        moved = (change.numbers.get("gpus", 0) for change in self.changes if change.kind in (Kind.END, Kind.SERVER))
        return len(self.changes), sum(gpus for gpus in moved if isinstance(gpus, int))

    @property
    def message(self) -> str:
        """In words: `job-1 ends, and frees 4 GPUs (n1:0-3); its priority is 6`."""
        return "; ".join(change.message for change in self.changes)


def endless(part: float = 1.0) -> bool:
    """No part of the time has passed: for a search that takes the time that it takes."""
    return False


class Found(NamedTuple):
    """What a search has found."""

    options: list[Option]
    """The smallest change first."""
    is_complete: bool
    """All ways were tried to their end."""


class Tries:
    """Changes that may still be tried."""

    def __init__(self, most: int, is_over: Callable[[], bool]) -> None:
        self._left, self.is_over = most, is_over

    def another(self) -> bool:
        """Whether there is one more, which is used up."""
        self._left -= 1
        return self._left >= 0 and not self.is_over()


def options(
    spare: Spare,
    job_id: str,
    ways: Iterable[Way] = WAYS,
    is_over: Callable[[], bool] = endless,
    most: int = MOST_TRIED,
) -> Found:
    """What would start the job.

    Args:
        spare: makes branches of the present.
        ways: which kinds of changes are looked for, in this order.
        is_over: asked before each change, as the last resort; when it is, what was found so far is all.
        most: so many changes are tried.
    """
    with without_collection():
        found = _found(spare, job_id, ways, Tries(most, is_over))
    return Found(sorted(_no_more_than_needed(found.options), key=lambda option: option.size), found.is_complete)


def _found(spare: Spare, job_id: str, ways: Iterable[Way], tries: Tries) -> Found:
    """On each way what starts the job."""
    found: list[Option] = []
    for way in ways:
        if way is Way.END and any(_is_by_ends_alone(option) for option in found):
            continue
        branch = spare()
        changes = _tried(way, branch, job_id, tries)
        spare.take_back(branch)
        if changes is None:
            return Found(found, is_complete=False)
        if changes:
            found.append(Option(way=way, changes=tuple(changes)))
    return Found(found, is_complete=True)


def _is_by_ends_alone(option: Option) -> bool:
    """Nothing goes before the job, and the way of ends would find the same."""
    return all(change.kind is Kind.END for change in option.changes)


def _no_more_than_needed(found: list[Option]) -> list[Option]:
    """Without those that are others and more, or the same."""
    said = [frozenset(change.message for change in option.changes) for option in found]
    return [
        option
        for number, option in enumerate(found)
        if not any(
            other < said[number] or (other == said[number] and before < number) for before, other in enumerate(said)
        )
    ]


def _tried(way: Way, branch: Branch, job_id: str, tries: Tries) -> list[Change] | None:
    """The changes on one way that start the job; empty: none do; None: there is no more try before that is known."""
    made: list[Change] = []
    now_s, waited = branch.now_s, Waited()
    while len(made) < MOST_CHANGES:
        if tries.is_over():
            return None
        now = branch.present(job_id)
        if way is Way.WAIT:
            change = waited.next(branch, now, job_id)
        else:
            change = remedy(way, now, job_id, list(made), branch.now_s)
        if change is None:
            return []
        if not tries.another():
            return None
        made.append(change)
        apply(branch, change, tries.is_over)
        if (change.starts or job_id) in branch.started:
            return _joined(made, now_s)
    return []


class Waited:
    """The way of time alone. A round in which no job starts and the cause stays is the last one that is looked at: one
    costs as much as all other ways, and the next ones are mostly as it was."""

    def __init__(self) -> None:
        self._before: tuple[str, int] | None = None

    def next(self, branch: Branch, now: Present, job_id: str) -> Change | None:
        """What happens next without anything else; None: nothing that may help."""
        if (left := for_it(now, job_id)) is not None:
            return left
        job = now.jobs.get(job_id)
        seen = job.cause if job is not None else "", len(branch.started)
        if self._before is None and not waits_for_time(now, job_id):
            return None
        if seen == self._before and now.turn_s:
            return None
        self._before, due = seen, branch.next_timer
        return later(due[0], max(0.0, due[0] - branch.now_s)) if due is not None else None


def _joined(made: list[Change], now_s: float) -> list[Change]:
    """Times that follow each other are one."""
    return [
        later(change.until_s, change.until_s - now_s) if change.until_s is not None else change
        for change, after in zip(made, [*made[1:], None], strict=True)
        if change.until_s is None or after is None or after.until_s is None
    ]


def apply(branch: Branch, change: Change, is_over: Callable[[], bool] = endless) -> None:
    """The change happens on the branch; time passes only until `is_over`."""
    if change.until_s is not None:
        due = branch.next_timer
        while due is not None and due[0] <= change.until_s and not is_over():
            branch.fire(*due)
            due = branch.next_timer
    for event in change.events:
        branch.feed(change.said_by, event)
