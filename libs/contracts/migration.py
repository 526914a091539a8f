"""Moves of running jobs; each is a saga with its steps on the log."""

from __future__ import annotations

from libs.contracts.base import Event, event
from libs.contracts.reasons import Reason

OWNER = "migration"


@event("migration.started.v1", owner=OWNER, subject="job_id")
class MigrationStarted(Event, frozen=True, kw_only=True):
    """The job is to leave these nodes.

    Placement starts its next attempt elsewhere, which takes over the state of this one (a live move). Where that is
    not possible a job that must leave is preempted and queued again, and any other stays.
    """

    migration_id: str
    job_id: str
    attempt: int
    from_nodes: list[str]
    to_nodes: list[str] = []
    """On these nodes, which may be some of those that it is on; empty: wherever there is room."""
    must_leave: bool = True
    gpus: int | None = None
    """How many it is to have from then on; None: as many as now."""
    reason: Reason


@event("migration.completed.v1", owner=OWNER, subject="job_id")
class MigrationCompleted(Event, frozen=True, kw_only=True):
    """The job has its new place: it was moved live, or placed anew."""

    migration_id: str
    job_id: str
    attempt: int
    """The attempt at the new place."""
    to_nodes: list[str]
    live: bool = False
    """With its state, without a restart."""


@event("migration.assessed.v1", owner=OWNER, subject="job_id")
class MigrationAssessed(Event, frozen=True, kw_only=True):
    """How fast the job is after a live move, against before: by the mini-batches of the first profile there."""

    migration_id: str
    job_id: str
    attempt: int
    before_per_s: float
    """Mini-batches per second, as profiled last before the move."""
    after_per_s: float
    gain_ratio: float
    """`after / before - 1`."""


@event("migration.failed.v1", owner=OWNER, subject="job_id")
class MigrationFailed(Event, frozen=True, kw_only=True):
    """The move ended without the job running elsewhere: it was not possible, or the job ended first."""

    migration_id: str
    job_id: str
    reason: Reason


@event("node.drained.v1", owner=OWNER, subject="node_id")
class NodeDrained(Event, frozen=True, kw_only=True):
    """No task is left on a node that was asked to drain."""

    node_id: str
    moved_jobs: int
