"""Events of migration, in sentences."""

from __future__ import annotations

from libs.contracts import migration
from libs.inspect.sentences.table import tells
from libs.inspect.sentences.words import gpus
from libs.kernel.words import counted


@tells(migration.MigrationStarted)
def _(e: migration.MigrationStarted) -> str:
    if e.gpus is not None:
        return f"migration {e.migration_id} to {gpus(e.gpus)} on {', '.join(e.to_nodes)}: {e.reason.message}"
    return f"migration {e.migration_id} away from {', '.join(e.from_nodes)}: {e.reason.message}"


@tells(migration.MigrationCompleted)
def _(e: migration.MigrationCompleted) -> str:
    return f"migration {e.migration_id} completed: attempt {e.attempt} on {', '.join(e.to_nodes)}"


@tells(migration.MigrationAssessed)
def _(e: migration.MigrationAssessed) -> str:
    rates = f"{e.before_per_s:.2f}/s before, {e.after_per_s:.2f}/s after"
    return f"migration {e.migration_id} has brought {e.gain_ratio:+.1%}: {rates}"


@tells(migration.MigrationFailed)
def _(e: migration.MigrationFailed) -> str:
    return f"migration {e.migration_id} failed: {e.reason.message}"


@tells(migration.NodeDrained)
def _(e: migration.NodeDrained) -> str:
    return f"node {e.node_id} is empty, {counted(e.moved_jobs, 'job was', 'jobs were')} moved"
