"""Jobs that were not let through yet, the arrays and DAGs that jobs are of, and which ends they wait for."""

from __future__ import annotations

import msgspec

from libs.contracts.groups import Condition, GroupPlace
from libs.contracts.jobs import JobSpec


class Pending(msgspec.Struct, kw_only=True):
    """A job that has arrived and was neither admitted nor rejected."""

    spec: JobSpec
    missing: dict[str, Condition] = {}
    """{id of a job, an array or a DAG: how it must end} of what it still waits for."""
    broken: str = ""
    """Why what it waits for can never be, as a sentence; empty: it can."""
    group: GroupPlace | None = None
    paused: bool = False
    """Its user has paused it: in an array it lets others go first."""
    cancelled: bool = False
    """Its user wants it cancelled: placement does that once it is let through, so that it waits for nothing else."""


class Group(msgspec.Struct, kw_only=True):
    """An array or a DAG with jobs that have not ended."""

    size: int
    at_once: int | None = None
    """Most jobs let through together."""
    through: dict[str, None] = {}
    """Jobs that were let through to run, and have not ended."""
    ended: int = 0
    failed: int = 0
    """Ended otherwise than with success."""
    turnstile: list[tuple[int, str]] = []
    """(index, job id) of the jobs that wait for nothing but their turn, and are not paused; ascending."""

    def next_in_turn(self) -> list[str]:
        """The job that may be let through now, if there is room for it."""
        return [self.turnstile[0][1]] if self.turnstile and not self.is_full else []

    @property
    def is_full(self) -> bool:
        """Whether no more of its jobs may be let through now."""
        return self.at_once is not None and len(self.through) >= self.at_once


def meets(condition: Condition, succeeded: bool) -> bool:
    """Whether an end is as it must be."""
    return condition is Condition.ANY or succeeded is (condition is Condition.OK)


def broken_by(on: str, condition: Condition) -> str:
    """A sentence for an end that is not as it must be."""
    if condition is Condition.OK:
        return f"it was to run after the success of {on}, which did not succeed"
    return f"it was to run after a failure of {on}, which succeeded"


def partly_failed(group_id: str) -> str:
    """A sentence for an array or a DAG of which not all jobs have succeeded."""
    return f"it was to run after the success of {group_id}, of which a job did not succeed"
