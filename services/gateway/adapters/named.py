"""What users refer to by its id, the beginning of its id, or its name: jobs, arrays, DAGs and sweeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import sqlalchemy as sa

from libs.contracts.read_models import GroupRow, JobRow, SweepRow
from services.gateway.adapters.tables import job_groups, jobs, rows_of, sweeps

N = TypeVar("N", JobRow, GroupRow, SweepRow)
MOST_ALIKE, MOST_RECENT = 10, 200
"""Most rows that one reference may mean, and most recent rows of which the names are offered for a misspelt one."""


@dataclass(frozen=True)
class Kind(Generic[N]):
    """One kind of named things, in a table with `id`, `name` and `arrived_offset`."""

    word: str
    """What users call it."""
    row_type: type[N]
    table: sa.TableClause


JOB = Kind("job", JobRow, jobs)
GROUP = Kind("array or DAG", GroupRow, job_groups)
SWEEP = Kind("sweep", SweepRow, sweeps)


def by_id(connection: sa.Connection, kind: Kind[N], subject: str) -> N | None:
    """The one with this id."""
    found = rows_of(kind.row_type, connection.execute(sa.select(kind.table).where(kind.table.c.id == subject)))
    return found[0] if found else None


def like_named(connection: sa.Connection, kind: Kind[N], reference: str) -> list[N]:
    """Those with an id that begins with the reference, else those that have it as their name; newest first."""
    columns = kind.table.c
    for condition in (columns.id.startswith(reference, autoescape=True), columns.name == reference):
        query = sa.select(kind.table).where(condition).order_by(columns.arrived_offset.desc()).limit(MOST_ALIKE)
        if found := rows_of(kind.row_type, connection.execute(query)):
            return found
    return []


def recent_names(connection: sa.Connection, kind: Kind[N]) -> list[str]:
    """Ids and names of the newest."""
    columns = kind.table.c
    query = sa.select(columns.id, columns.name).order_by(columns.arrived_offset.desc()).limit(MOST_RECENT)
    return [word for row in connection.execute(query) for word in row]
