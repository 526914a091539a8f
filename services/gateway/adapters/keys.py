"""The stored index of accepted requests: a cache over the log, next to the read models. The log alone is the truth."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import SQLAlchemyError

from libs.contracts.gateway import OWNER
from libs.contracts.read_models import EventRow
from libs.contracts.wire import Undecodable
from services.gateway.adapters.cluster_queries import events_by_id
from services.gateway.adapters.tables import HOLD_TABLES, checkpoint, jobs, sweeps
from services.gateway.core.idempotency import Accepted, accepted
from services.gateway.core.records import records_of

FORM = 1
"""Of the tables, as `gateway_index` says it. Tables of another form are dropped, and the log is read anew."""
PRUNED_AT_ONCE = 5000
_LOCK = 0x53616E6B

_metadata = sa.MetaData()
_index = sa.Table(
    "gateway_index",
    _metadata,
    sa.Column("form", sa.Integer(), primary_key=True, autoincrement=False),
    sa.Column("log_id", sa.Text(), nullable=False),
    sa.Column("writer", sa.Text(), nullable=False),
    sa.Column("next_offset", sa.BigInteger(), nullable=False),
    sa.Column("kept_from", sa.BigInteger(), nullable=False),
)
_keys = sa.Table(
    "gateway_keys",
    _metadata,
    sa.Column("event_id", sa.Text(), primary_key=True),
    sa.Column("log_offset", sa.BigInteger(), nullable=False, index=True),
    sa.Column("digest", sa.LargeBinary(), nullable=False),
    sa.Column("arrival", sa.Text(), index=True),
    sa.Column("time_s", sa.Double(), nullable=False),
    sqlite_with_rowid=False,
)
_ENTRY = (_keys.c.event_id, _keys.c.log_offset, _keys.c.digest, _keys.c.arrival, _keys.c.time_s)


class KeysAway(Exception):
    """The index cannot be read or written now."""


class KeysTaken(Exception):
    """Another gateway keeps the index now."""


@dataclass(frozen=True)
class Found:
    """What the index and the read models know of some requests, as of one moment."""

    accepted: dict[str, Accepted] = field(default_factory=dict)
    """{event id: entry}."""
    arrived: dict[str, int] = field(default_factory=dict)
    """{job or sweep id: offset of its arrival}."""
    kept_from: int = 0
    """Offset from which on every request is in the index; those before it are known to the read models only."""
    read_models_next: int = 0
    """Everything before this offset is in the read models of this log."""

    @property
    def is_complete(self) -> bool:
        """Whether a request that is not in here is not on the log."""
        return self.kept_from <= self.read_models_next


class Keys:
    """The index of one gateway's requests. Blocking: call it in a thread.

    One gateway at a time keeps it: `open` takes it over, and what an older gateway writes afterwards is refused.

    Args:
        url: SQLAlchemy URL of the read models' database; a SQLite file and its folder are made.
    """

    def __init__(self, url: str) -> None:
        self._engine = engine_of(url)
        self._writer = uuid.uuid4().hex
        self._sees_models = False

    def open(self, log_id: str, end_offset: int, *, anew: bool = False) -> int:
        """Take the index over. One of another log, or of another form, is dropped.

        Args:
            log_id: id of the log's first event; empty while the log is.
            end_offset: of control.
            anew: drop the index whatever it is.

        Returns:
            The offset up to which it is complete: the log has to be read from there on.

        Raises:
            KeysAway: the database cannot do it.
        """
        with self._writing() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
            if anew or not self._fits(connection, log_id, end_offset):
                _metadata.drop_all(connection)
                _metadata.create_all(connection)
                fresh = {"form": FORM, "log_id": log_id, "writer": self._writer, "next_offset": 0, "kept_from": 0}
                connection.execute(_index.insert().values(fresh))
            connection.execute(_index.update().values(writer=self._writer))
            return int(connection.execute(sa.select(_index.c.next_offset)).scalar_one())

    def _fits(self, connection: sa.Connection, log_id: str, end_offset: int) -> bool:
        there = sa.inspect(connection)
        if not (there.has_table(_index.name) and there.has_table(_keys.name)):
            return False
        known = connection.execute(sa.select(_index.c.form, _index.c.log_id, _index.c.next_offset)).all()
        return len(known) == 1 and tuple(known[0][:2]) == (FORM, log_id) and known[0][2] <= end_offset

    def add(self, entries: Sequence[Accepted], next_offset: int, log_id: str, *, kept_from: int = 0) -> None:
        """Store entries and move the position, or nothing of it. Entries that are known stay as they are.

        Args:
            entries: of events on the log.
            next_offset: every event of the gateway before it is stored now.
            log_id: id of the log's first event.
            kept_from: the log itself begins here.

        Raises:
            KeysTaken: another gateway keeps the index.
            KeysAway: the database cannot do it.
        """
        column = _index.c
        moved = {
            "log_id": log_id,
            "next_offset": sa.case((column.next_offset > next_offset, column.next_offset), else_=next_offset),
            "kept_from": sa.case((column.kept_from > kept_from, column.kept_from), else_=kept_from),
        }
        with self._writing() as connection:
            if not connection.execute(_index.update().where(column.writer == self._writer).values(moved)).rowcount:
                raise KeysTaken("another gateway keeps the index of requests")
            if entries:
                connection.execute(_insert(connection.dialect.name), [_row(entry) for entry in entries])

    def find(self, event_ids: Sequence[str], subjects: Sequence[str] = ()) -> Found:
        """What is known of requests, by the ids of their events and of the jobs and sweeps that they would make.

        Args:
            event_ids: at most a few hundred.
            subjects: ids of jobs or sweeps, as many.

        Raises:
            KeysTaken: another gateway keeps the index.
            KeysAway: the database cannot be read.
        """
        with self._reading() as connection:
            log_id, kept_from = self._own(connection)
            known = _select(connection, _keys.c.event_id.in_(event_ids))
            arrived = {
                str(entry.arrival): entry.offset
                for entry in (_select(connection, _keys.c.arrival.in_(subjects)) if subjects else ())
            }
            position = self._read_models_next(connection, log_id)
            if position:
                missing = [event_id for event_id in event_ids if event_id not in {entry.event_id for entry in known}]
                known += _beyond(connection, missing) if kept_from and missing else []
                for table in (jobs, sweeps) if subjects else ():
                    rows = sa.select(table.c.id, table.c.arrived_offset).where(table.c.id.in_(subjects))
                    arrived |= {row[0]: row[1] for row in connection.execute(rows)}
        return Found({entry.event_id: entry for entry in known}, arrived, kept_from, position)

    def arrival_of(self, subject: str) -> Accepted | None:
        """The stored entry by which a job or a sweep arrived.

        Raises:
            KeysAway: the database cannot be read.
        """
        with self._reading() as connection:
            found = _select(connection, _keys.c.arrival == subject)
        return found[0] if found else None

    def prune(self, before_s: float) -> bool:
        """Forget the oldest entries, as far as the read models have them: `PRUNED_AT_ONCE` at most.

        Args:
            before_s: entries with an envelope of that time or later are kept, in seconds since the epoch.

        Returns:
            Whether there may be more to forget.

        Raises:
            KeysTaken: another gateway keeps the index.
            KeysAway: the database cannot do it.
        """
        offset = _keys.c.log_offset
        with self._writing() as connection:
            log_id, _ = self._own(connection)
            position = self._read_models_next(connection, log_id)
            oldest = sa.select(offset, _keys.c.time_s).where(offset < position).order_by(offset).limit(PRUNED_AT_ONCE)
            outdated: list[int] = []
            for log_offset, time_s in connection.execute(oldest).all():
                if time_s >= before_s:
                    break
                outdated.append(log_offset)
            if outdated:
                connection.execute(_keys.delete().where(offset <= outdated[-1]))
                connection.execute(_index.update().values(kept_from=outdated[-1] + 1))
            return len(outdated) == PRUNED_AT_ONCE

    def close(self) -> None:
        """Give back the connections."""
        self._engine.dispose()

    def _own(self, connection: sa.Connection) -> tuple[str, int]:
        """Log and `kept_from` of the index, which must still be this gateway's."""
        known = connection.execute(sa.select(_index.c.writer, _index.c.log_id, _index.c.kept_from)).one_or_none()
        if known is None:
            raise KeysAway("the index of requests has gone")
        if known[0] != self._writer:
            raise KeysTaken("another gateway keeps the index of requests")
        return known[1], known[2]

    def _read_models_next(self, connection: sa.Connection, log_id: str) -> int:
        """Position of the read models; 0 when there are none of this log."""
        self._sees_models = self._sees_models or sa.inspect(connection).has_table(checkpoint.name)
        if not self._sees_models:
            return 0
        position = sa.select(checkpoint.c.next_offset).where(checkpoint.c.log_id == log_id)
        return int(connection.execute(position).scalar() or 0)

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        try:
            with self._engine.begin() as connection:
                if connection.dialect.name == "sqlite":
                    connection.exec_driver_sql("BEGIN IMMEDIATE")
                yield connection
        except SQLAlchemyError as error:
            raise KeysAway(_words(error)) from error

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        """All selects see one moment."""
        try:
            with self._engine.connect() as connection:
                if connection.dialect.name == "sqlite":
                    connection.exec_driver_sql("BEGIN")
                else:
                    connection = connection.execution_options(isolation_level="REPEATABLE READ")
                    if self._sees_models:
                        connection.execute(HOLD_TABLES)
                yield connection
        except SQLAlchemyError as error:
            self._sees_models = False
            raise KeysAway(_words(error)) from error


def _select(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> list[Accepted]:
    return [Accepted(*row) for row in connection.execute(sa.select(*_ENTRY).where(condition))]


def _beyond(connection: sa.Connection, event_ids: Sequence[str]) -> list[Accepted]:
    """Entries that the index has forgotten, made of the read models' events."""
    return [_entry_of(row) for row in events_by_id(connection, event_ids) if row.source == OWNER]


def _entry_of(row: EventRow) -> Accepted:
    """An event of a type that this version does not know has an id that is taken, and is like no request."""
    try:
        [record] = records_of([row])
    except Undecodable:
        return Accepted(row.id, row.log_offset, b"", None, row.time_s)
    return accepted(record.envelope, record.offset)


def _insert(dialect: str) -> sa.Executable:
    insert = postgresql.insert(_keys) if dialect == "postgresql" else sqlite.insert(_keys)
    return insert.on_conflict_do_nothing()


def _row(entry: Accepted) -> dict[str, object]:
    return {
        "event_id": entry.event_id,
        "log_offset": entry.offset,
        "digest": entry.digest,
        "arrival": entry.arrival,
        "time_s": entry.time_s,
    }


def _words(error: SQLAlchemyError) -> str:
    return str(getattr(error, "orig", None) or error)


def engine_of(url: str) -> sa.Engine:
    """For what the gateway itself keeps next to the read models."""
    is_sqlite = make_url(url).get_backend_name() == "sqlite"
    engine = sa.create_engine(
        url,
        json_deserializer=msgspec.json.decode,
        pool_pre_ping=True,
        connect_args={} if is_sqlite else {"prepare_threshold": None},  # as in `Database`
    )
    if is_sqlite:
        if engine.url.database:
            Path(engine.url.database).parent.mkdir(parents=True, exist_ok=True)
        sa.event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _prepare_sqlite(connection: DBAPIConnection, _record: object) -> None:
    cursor = connection.cursor()
    for pragma in ("busy_timeout = 5000", "journal_mode = WAL", "synchronous = NORMAL"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
