"""Queries over nodes, GPUs, tenants, settings and events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from libs.contracts.catalogue import TERMINAL
from libs.contracts.gateway import NO_GUESTS, JobArrived
from libs.contracts.read_models import EventRow, GpuRow, NodeRow, SettingRow, TenantRow
from libs.contracts.runtime import ClockRepaired
from services.gateway.adapters.tables import event_counts, events, gpus, nodes, rows_of, settings, tenants

NEWEST_DECISIONS = 200
"""So many show by how much the services are ahead of the log's clock: each has decided lately, or not at all."""


@dataclass(frozen=True)
class EventFilter:
    """Which events; an empty filter is all of them. Fields must all hold, the values of one are alternatives."""

    types: Sequence[str] = ()
    jobs: Sequence[str] = ()
    nodes: Sequence[str] = ()
    sources: Sequence[str] = ()

    def holds(self, *, event_type: str, job_id: str | None, node_id: str | None, source: str) -> bool:
        """Whether an event is wanted."""
        return (
            (not self.types or event_type in self.types)
            and (not self.jobs or job_id in self.jobs)
            and (not self.nodes or node_id in self.nodes)
            and (not self.sources or source in self.sources)
        )


def all_nodes(connection: sa.Connection) -> list[NodeRow]:
    """Every node that ever joined, by id."""
    return rows_of(NodeRow, connection.execute(sa.select(nodes).order_by(nodes.c.id)))


def node(connection: sa.Connection, node_id: str) -> NodeRow | None:
    """One node by its id."""
    found = rows_of(NodeRow, connection.execute(sa.select(nodes).where(nodes.c.id == node_id)))
    return found[0] if found else None


def all_gpus(connection: sa.Connection) -> list[GpuRow]:
    """Every GPU, by node and index."""
    return rows_of(GpuRow, connection.execute(sa.select(gpus).order_by(gpus.c.node_id, gpus.c.gpu_index)))


def all_tenants(connection: sa.Connection) -> list[TenantRow]:
    """Every tenant, by name."""
    return rows_of(TenantRow, connection.execute(sa.select(tenants).order_by(tenants.c.name)))


def all_settings(connection: sa.Connection) -> list[SettingRow]:
    """Every setting that was ever changed."""
    query = sa.select(settings).order_by(settings.c.service, settings.c.name)
    return rows_of(SettingRow, connection.execute(query))


def takes_guests(connection: sa.Connection) -> bool:
    """Whether there may be guests now."""
    rows = all_settings(connection)
    return any(row.service == "placement" and row.name == "guests" and row.value != NO_GUESTS for row in rows)


def event_page(
    connection: sa.Connection, wanted: EventFilter, *, limit: int, after: int | None, newest_first: bool
) -> list[EventRow]:
    """One page of events in order of offset, from behind the offset `after` on."""
    key = events.c.log_offset
    query = sa.select(events)
    for column, values in (
        (events.c.type, wanted.types),
        (events.c.job_id, wanted.jobs),
        (events.c.node_id, wanted.nodes),
        (events.c.source, wanted.sources),
    ):
        if values:
            query = query.where(column.in_(values))
    if after is not None:
        query = query.where(key < after if newest_first else key > after)
    query = query.order_by(key.desc() if newest_first else key.asc()).limit(limit)
    return rows_of(EventRow, connection.execute(query))


def clock_ahead_s(connection: sa.Connection, services: Sequence[str]) -> float:
    """By how much the services' decisions are dated ahead of the log's clock, seconds; 0 where they are not.

    Of the newest of them: a repair is the beginning.
    """
    key, repaired = events.c.log_offset, ClockRepaired.wire_type
    since = sa.select(sa.func.max(key)).where(events.c.type == repaired).scalar_subquery()
    query = sa.select(events).where(events.c.source.in_(services), key > sa.func.coalesce(since, -1))
    rows = rows_of(EventRow, connection.execute(query.order_by(key.desc()).limit(NEWEST_DECISIONS)))
    ahead_s = [(row.time_s if row.said_s is None else row.said_s) - row.appended_at_s for row in rows]
    return max([0.0, *ahead_s])


def events_by_id(connection: sa.Connection, ids: Sequence[str]) -> list[EventRow]:
    """The events with these ids, in order of offset."""
    found: list[EventRow] = []
    for start in range(0, len(ids), 500):
        query = sa.select(events).where(events.c.id.in_(ids[start : start + 500]))
        found += rows_of(EventRow, connection.execute(query))
    return sorted(found, key=lambda row: row.log_offset)


def newest_by_source(connection: sa.Connection) -> dict[str, int]:
    """{source: offset of its newest event}."""
    newest = sa.func.max(event_counts.c.newest_offset)
    found = connection.execute(sa.select(event_counts.c.source, newest).group_by(event_counts.c.source))
    return dict(sorted((row[0], row[1]) for row in found))


def count_of(connection: sa.Connection, source: str) -> int:
    """How many events of a source there are."""
    query = sa.select(sa.func.sum(event_counts.c.events)).where(event_counts.c.source == source)
    return int(connection.execute(query).scalar() or 0)


def arrivals_and_ends(connection: sa.Connection) -> tuple[int, int]:
    """How many jobs have arrived, and how many terminal events there are."""

    def count(types: list[str]) -> int:
        query = sa.select(sa.func.sum(event_counts.c.events)).where(event_counts.c.type.in_(types))
        return int(connection.execute(query).scalar() or 0)

    return count([JobArrived.wire_type]), count([cls.wire_type for cls in TERMINAL])
