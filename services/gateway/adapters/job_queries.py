"""Queries over jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa

from libs.contracts.introspection import JobProfiled
from libs.contracts.placement import JobPlaced, JobQueued, TimeSliceStarted
from libs.contracts.read_models import (
    FINAL_STATES,
    WAITING_STATES,
    AttemptRow,
    EventRow,
    JobRow,
    JobState,
    ProfileRow,
    ReportRow,
)
from libs.policies.policy import Kind
from libs.policies.table import POLICIES
from services.gateway.adapters.cluster_queries import all_settings
from services.gateway.adapters.named import JOB, by_id
from services.gateway.adapters.tables import attempts, events, job_labels, jobs, profiles, reports, rows_of
from services.gateway.core import views

LOOKED_BEHIND = 3
"""How far a job that is behind one which is behind another one, and so on, is followed."""
MOST_PLACES = 2000
MOST_BEFORE = 500
"""Jobs that are looked at in each of these steps."""


@dataclass(frozen=True)
class JobFilter:
    """Which jobs; an empty filter is all of them. Values of one field are alternatives, labels must all hold."""

    states: Sequence[JobState] = ()
    tenants: Sequence[str] = ()
    users: Sequence[str] = ()
    names: Sequence[str] = ()
    labels: Sequence[tuple[str, str]] = ()
    submitted_after_s: float | None = None
    ended_after_s: float | None = None
    ended_before_s: float | None = None
    """A job that has not ended is in no stretch that one of these bounds."""
    groups: Sequence[str] = ()
    """Ids of arrays and DAGs."""


def job(connection: sa.Connection, job_id: str) -> JobRow | None:
    """One job by its id."""
    return by_id(connection, JOB, job_id)


def page(
    connection: sa.Connection,
    wanted: JobFilter,
    *,
    limit: int,
    after: int | None,
    newest_first: bool,
    grouped: bool = False,
) -> list[JobRow]:
    """One page of jobs in order of arrival, from behind the arrival offset `after` on.

    Args:
        grouped: of each array and DAG with a job that is wanted only its first job, which stands for the whole.
    """
    key = jobs.c.arrived_offset
    query = sa.select(jobs).where(_stands_for_one(wanted) if grouped else sa.and_(*_conditions(jobs, wanted)))
    if after is not None:
        query = query.where(key < after if newest_first else key > after)
    query = query.order_by(key.desc() if newest_first else key.asc()).limit(limit)
    return rows_of(JobRow, connection.execute(query))


def _stands_for_one(wanted: JobFilter) -> sa.ColumnElement[bool]:
    """A wanted job that was submitted alone, or the first of an array or a DAG that has one."""
    members = jobs.alias("members")
    of_group = (members.c.group_id == jobs.c.group_id) & sa.and_(*_conditions(members, wanted))
    has_one = sa.exists(sa.select(sa.literal(1)).select_from(members).where(of_group))
    alone = jobs.c.group_id.is_(None) & sa.and_(*_conditions(jobs, wanted))
    return alone | (jobs.c.leads_group & has_one)


def _conditions(of: sa.FromClause, wanted: JobFilter) -> list[sa.ColumnElement[bool]]:
    """What holds for wanted rows of `of`: the jobs, or an alias of them."""
    conditions: list[sa.ColumnElement[bool]] = [sa.true()]
    for column, values in (
        (of.c.state, [state.value for state in wanted.states]),
        (of.c.tenant, wanted.tenants),
        (of.c.user_name, wanted.users),
        (of.c.name, wanted.names),
        (of.c.group_id, wanted.groups),
    ):
        if values:
            conditions.append(column.in_(values))
    for name, value in wanted.labels:
        has = (job_labels.c.job_id == of.c.id) & (job_labels.c.name == name) & (job_labels.c.value == value)
        conditions.append(sa.exists(sa.select(sa.literal(1)).select_from(job_labels).where(has)))
    if wanted.submitted_after_s is not None:
        conditions.append(of.c.submitted_s >= wanted.submitted_after_s)
    if wanted.ended_after_s is not None:
        conditions.append(of.c.finished_s >= wanted.ended_after_s)
    if wanted.ended_before_s is not None:
        conditions.append(of.c.finished_s < wanted.ended_before_s)
    return conditions


def queue_positions(connection: sa.Connection) -> dict[str, int]:
    """{job id: place} of the first `MOST_PLACES` jobs that placement has in its queue, from 1: as it goes through them.

    Those with a higher priority first, then in order of arrival. A job that waits for something else than GPUs (its
    user, other jobs, its tenant's limit, a retry) is in no queue yet. Under a policy with an order, suspended jobs that
    would go on are in the same queue; under one that gives shares there is none.
    """
    kind = POLICIES[views.policy(all_settings(connection))["policy"]].kind
    if kind == Kind.SHARES:
        return {}
    states = WAITING_STATES if kind == Kind.ORDER else (JobState.QUEUED,)
    query = (
        sa.select(jobs.c.id)
        .where(jobs.c.state.in_([state.value for state in states]))
        .where(jobs.c.granted_gpus > 0, ~jobs.c.holds_gpus, ~jobs.c.held, ~jobs.c.cancel_requested)
        .order_by(jobs.c.priority.desc(), jobs.c.arrived_offset)
        .limit(MOST_PLACES)
    )
    return {job_id: place for place, job_id in enumerate(connection.execute(query).scalars(), start=1)}


_ACCOUNTED = ("id", "tenant", "gpus", "widths", "state", "attempt", "placement", "tasks", "granted_gpus", "notices")


def live(connection: sa.Connection) -> list[JobRow]:
    """Every job that has not ended, with what it holds; its other fields are not loaded."""
    query = sa.select(*(jobs.c[name] for name in _ACCOUNTED)).where(_not_ended())
    unknown = {"name": "", "user_name": "", "job_class": "", "priority": 0}
    return [
        msgspec.convert({**unknown, **dict(zip(_ACCOUNTED, values, strict=True))}, JobRow)
        for values in connection.execute(query)
    ]


def asking(connection: sa.Connection) -> list[JobRow]:
    """The jobs that have not ended and ask for CPUs or memory of their hosts."""
    return rows_of(JobRow, connection.execute(sa.select(jobs).where(_not_ended(), jobs.c.is_host_bound)))


def _not_ended() -> sa.ColumnElement[bool]:
    """As a list of states and not of exceptions: so the index leads past all jobs that have ended."""
    return jobs.c.state.in_([state.value for state in JobState if state not in FINAL_STATES])


def count_live(connection: sa.Connection) -> list[tuple[str, str, int]]:
    """(tenant, state, number) of the jobs that have not ended."""
    query = sa.select(jobs.c.tenant, jobs.c.state, sa.func.count()).where(_not_ended())
    return [(row[0], row[1], row[2]) for row in connection.execute(query.group_by(jobs.c.tenant, jobs.c.state))]


def waiting_gpus(connection: sa.Connection) -> dict[str, int]:
    """{tenant: GPUs that its jobs in the queue ask for}."""
    query = sa.select(jobs.c.tenant, sa.func.sum(jobs.c.gpus)).where(jobs.c.state == JobState.QUEUED.value)
    return {row[0]: int(row[1]) for row in connection.execute(query.group_by(jobs.c.tenant))}


def count_waiting(connection: sa.Connection, least_priority: int) -> int:
    """Waiting jobs of at least this priority."""
    is_waiting = (jobs.c.state == JobState.QUEUED.value) & (jobs.c.priority >= least_priority)
    return connection.execute(sa.select(sa.func.count()).select_from(jobs).where(is_waiting)).scalar() or 0


def oldest_waiting(connection: sa.Connection) -> dict[str, Any] | None:
    """The job that waits longest, and for what."""
    query = (
        sa.select(jobs.c.id, jobs.c.queued_s, jobs.c.reason)
        .where(jobs.c.state == JobState.QUEUED.value)
        .order_by(jobs.c.queued_s, jobs.c.id)
        .limit(1)
    )
    row = connection.execute(query).first()
    return None if row is None else {"id": row[0], "since_s": row[1], "reason": row[2]}


def count_by_state(connection: sa.Connection) -> dict[str, int]:
    """{state: number of jobs}, of the states that occur."""
    found = connection.execute(sa.select(jobs.c.state, sa.func.count()).group_by(jobs.c.state))
    return dict(sorted((row[0], row[1]) for row in found))


def attempts_of(connection: sa.Connection, job_id: str) -> list[AttemptRow]:
    """The job's placed attempts, oldest first."""
    query = sa.select(attempts).where(attempts.c.job_id == job_id).order_by(attempts.c.attempt)
    return rows_of(AttemptRow, connection.execute(query))


def profiles_of(connection: sa.Connection, job_id: str, limit: int) -> list[ProfileRow]:
    """The newest points of the job's curves, oldest first."""
    return rows_of(ProfileRow, connection.execute(_newest(profiles, job_id, limit)))[::-1]


def reports_of(connection: sa.Connection, job_id: str, limit: int) -> list[ReportRow]:
    """The newest numbers that the job's script has reported, oldest first."""
    return rows_of(ReportRow, connection.execute(_newest(reports, job_id, limit)))[::-1]


def _newest(table: sa.TableClause, job_id: str, limit: int) -> sa.Select[Any]:
    """So many rows of the job, the last on the log first."""
    return sa.select(table).where(table.c.job_id == job_id).order_by(table.c.log_offset.desc()).limit(limit)


def events_of(connection: sa.Connection, job_id: str, *, measurements: bool = False) -> list[EventRow]:
    """What is on control about the job, in order; its many `JobProfiled` only when asked for."""
    query = sa.select(events).where(events.c.job_id == job_id).order_by(events.c.log_offset)
    if not measurements:
        query = query.where(events.c.type != JobProfiled.wire_type)
    return rows_of(EventRow, connection.execute(query))


def with_those_before(connection: sa.Connection, known: list[EventRow]) -> list[EventRow]:
    """The same events with those of the jobs that it has been behind, and that these have been behind; in order."""
    found = {row.log_offset: row for row in known}
    jobs = {row.job_id: None for row in known}
    news = known
    for _ in range(LOOKED_BEHIND):
        names = dict.fromkeys(_before(connection, news))
        named = [job_id for job_id in names if job_id not in jobs][:MOST_BEFORE]
        if not named:
            break
        jobs |= dict.fromkeys(named)
        query = sa.select(events).where(events.c.job_id.in_(named), events.c.type != JobProfiled.wire_type)
        news = rows_of(EventRow, connection.execute(query))
        found |= {row.log_offset: row for row in news}
    return [found[offset] for offset in sorted(found)]


def _before(connection: sa.Connection, rows: Sequence[EventRow]) -> Iterator[str]:
    """Jobs that these events say to go first, and those that have led the lines in which they say jobs to stand."""
    told = [row for row in rows if row.type == JobQueued.wire_type]
    yield from (row.data["behind"] for row in told if row.data.get("behind"))
    lines = {row.data["line"]: None for row in told if row.data.get("line") and not row.data.get("leads")}
    if lines:
        query = sa.select(events.c.job_id, events.c.data).where(
            events.c.type == JobQueued.wire_type, events.c.log_offset >= told[0].log_offset
        )
        if placed := [row.log_offset for row in rows if row.type == JobPlaced.wire_type]:
            query = query.where(events.c.log_offset <= max(placed[-1], told[-1].log_offset))
        for job_id, data in connection.execute(query.order_by(events.c.log_offset)):
            if data.get("leads") and data.get("line") in lines:
                yield job_id


def turns_of(connection: sa.Connection, job_id: str, first: int, last: int) -> list[EventRow]:
    """The time slices between two offsets, both included, that name the job, in order.

    They are about servers and name several jobs, so that no column has the job's id.
    """
    query = (
        sa.select(events)
        .where(events.c.type == TimeSliceStarted.wire_type, events.c.log_offset.between(first, last))
        .where(sa.cast(events.c.data, sa.Text).contains(f'"{job_id}"', autoescape=True))
        .order_by(events.c.log_offset)
    )
    return rows_of(EventRow, connection.execute(query))
