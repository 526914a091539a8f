"""Queries over arrays and DAGs, and how their jobs are."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from libs.contracts.read_models import GroupRow, JobRow
from services.gateway.adapters.named import GROUP, by_id
from services.gateway.adapters.tables import job_groups, jobs, rows_of


def group(connection: sa.Connection, group_id: str) -> GroupRow | None:
    """One array or DAG by its id."""
    return by_id(connection, GROUP, group_id)


def page(connection: sa.Connection, *, limit: int, after: int | None) -> list[GroupRow]:
    """One page of arrays and DAGs, newest first, from before the arrival offset `after` on."""
    key = job_groups.c.arrived_offset
    query = sa.select(job_groups)
    if after is not None:
        query = query.where(key < after)
    return rows_of(GroupRow, connection.execute(query.order_by(key.desc()).limit(limit)))


def with_ids(connection: sa.Connection, group_ids: Sequence[str]) -> dict[str, GroupRow]:
    """{id: row} of these."""
    query = sa.select(job_groups).where(job_groups.c.id.in_(group_ids))
    return {row.id: row for row in rows_of(GroupRow, connection.execute(query))} if group_ids else {}


def member(connection: sa.Connection, group_id: str, index: int) -> JobRow | None:
    """The job with this place."""
    query = sa.select(jobs).where(jobs.c.group_id == group_id, jobs.c.group_index == index)
    found = rows_of(JobRow, connection.execute(query))
    return found[0] if found else None


def counts(connection: sa.Connection, group_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """{id: {state: jobs}} of the jobs that have arrived."""
    found: dict[str, dict[str, int]] = {group_id: {} for group_id in group_ids}
    if not group_ids:
        return found
    query = (
        sa.select(jobs.c.group_id, jobs.c.state, sa.func.count())
        .where(jobs.c.group_id.in_(group_ids))
        .group_by(jobs.c.group_id, jobs.c.state)
        .order_by(jobs.c.group_id, jobs.c.state)
    )
    for group_id, state, number in connection.execute(query):
        found[group_id][state] = number
    return found
