"""Moves of running jobs; each is a saga whose steps are on the log."""

from __future__ import annotations

from libs.contracts.base import Event, event
from libs.contracts.reasons import Reason

OWNER = "migration"


@event("migration.started.v1", owner=OWNER, subject="job_id")
class MigrationStarted(Event, frozen=True, kw_only=True):
    """The job is to leave these nodes. Placement preempts the attempt and places the job elsewhere."""

    migration_id: str
    job_id: str
    attempt: int
    from_nodes: list[str]
    reason: Reason


@event("migration.completed.v1", owner=OWNER, subject="job_id")
class MigrationCompleted(Event, frozen=True, kw_only=True):
    """The job runs again, elsewhere."""

    migration_id: str
    job_id: str
    attempt: int
    """The attempt that runs at the new place."""
    to_nodes: list[str]


@event("migration.failed.v1", owner=OWNER, subject="job_id")
class MigrationFailed(Event, frozen=True, kw_only=True):
    """The move ended without the job running elsewhere: it ended, failed or was cancelled first."""

    migration_id: str
    job_id: str
    reason: Reason


@event("node.drained.v1", owner=OWNER, subject="node_id")
class NodeDrained(Event, frozen=True, kw_only=True):
    """No task is left on a node that was asked to drain."""

    node_id: str
    moved_jobs: int
