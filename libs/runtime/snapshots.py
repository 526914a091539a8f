"""Snapshots of cores in a SQL database: a cache that makes a restart fast. The log alone is the truth."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Double,
    Engine,
    LargeBinary,
    MetaData,
    String,
    Table,
    create_engine,
    delete,
    event,
    insert,
    or_,
    select,
)
from sqlalchemy.engine import Connection
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateTable

from libs.kernel.replica import Snapshot, SnapshotDamaged

KEPT = 3
"""Snapshots kept per service: when the newest is damaged, an older one still saves most of the replay."""

_snapshots = Table(
    "core_snapshots",
    MetaData(),
    Column("cell", String(64), primary_key=True),
    Column("service", String(64), primary_key=True),
    Column("next_offset", BigInteger, primary_key=True, autoincrement=False),
    Column("log_id", String(64), nullable=False),
    Column("taken_at_s", Double, nullable=False),
    Column("state_hash", String(64), nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("body_digest", String(64), nullable=False),
)


@dataclass(frozen=True)
class Stored:
    """A snapshot as the database gave it back, not yet looked into."""

    service: str
    next_offset: int
    body: bytes
    body_digest: str

    def open(self) -> Snapshot:
        """The snapshot.

        Raises:
            SnapshotDamaged: its bytes are not those that were stored.
        """
        found = _digest(self.body)
        if found != self.body_digest:
            raise SnapshotDamaged(
                f"snapshot of {self.service} at offset {self.next_offset}: "
                f"its digest is {found}, stored was {self.body_digest}"
            )
        return msgspec.msgpack.decode(self.body, type=Snapshot)


class Snapshots:
    """The stored snapshots of one cell. Blocking: a shell calls it from a thread.

    Every method raises SQLAlchemyError when the database cannot do it.
    """

    def __init__(self, url: str, cell: str) -> None:
        """Name the database (SQLite or PostgreSQL); it is opened, and the table created, at the first use."""
        self._cell = cell
        self._engine = _engine(url)
        self._has_table = False

    def save(self, snapshot: Snapshot, log_id: str, taken_at_s: float) -> None:
        """Store a snapshot and forget the service's oldest, and those of other logs.

        Args:
            snapshot: taken at a committed position.
            log_id: id of the log's first event: a snapshot of another log is never loaded.
            taken_at_s: when, in seconds since the epoch.
        """
        body = msgspec.msgpack.encode(snapshot)
        row = {
            "cell": self._cell,
            "service": snapshot.service,
            "next_offset": snapshot.next_offset,
            "log_id": log_id,
            "taken_at_s": taken_at_s,
            "state_hash": snapshot.state_hash,
            "body": body,
            "body_digest": _digest(body),
        }
        self._create()
        with self._engine.begin() as connection:
            connection.execute(delete(_snapshots).where(*self._at(snapshot.service, snapshot.next_offset)))
            connection.execute(insert(_snapshots).values(row))
            self._forget_older(connection, snapshot.service, log_id)

    def load(self, service: str, log_id: str, up_to_offset: int) -> list[Stored]:
        """The service's snapshots of this log at or before an offset, newest first."""
        self._create()
        t = _snapshots.c
        query = (
            select(_snapshots)
            .where(t.cell == self._cell, t.service == service, t.log_id == log_id, t.next_offset <= up_to_offset)
            .order_by(t.next_offset.desc())
        )
        with self._engine.connect() as connection:
            return [
                Stored(row.service, row.next_offset, row.body, row.body_digest) for row in connection.execute(query)
            ]

    def services(self) -> list[str]:
        """What has snapshots of this cell, of whichever log."""
        self._create()
        query = select(_snapshots.c.service).where(_snapshots.c.cell == self._cell).distinct()
        with self._engine.connect() as connection:
            return sorted(connection.execute(query).scalars())

    def drop(self, service: str, next_offset: int) -> None:
        """Forget one snapshot: it was found damaged."""
        with self._engine.begin() as connection:
            connection.execute(delete(_snapshots).where(*self._at(service, next_offset)))

    def close(self) -> None:
        """Give back the connections."""
        self._engine.dispose()

    def _create(self) -> None:
        if self._has_table:
            return
        for last in (False, True):
            try:
                with self._engine.begin() as connection:
                    connection.execute(CreateTable(_snapshots, if_not_exists=True))
                break
            except DBAPIError:  # PostgreSQL: two services that create it at one moment collide, once
                if last:
                    raise
        self._has_table = True

    def _forget_older(self, connection: Connection, service: str, log_id: str) -> None:
        t = _snapshots.c
        of_service = (t.cell == self._cell, t.service == service)
        newest = select(t.next_offset).where(*of_service, t.log_id == log_id)
        newest = newest.order_by(t.taken_at_s.desc(), t.next_offset.desc()).limit(KEPT)
        kept = list(connection.execute(newest).scalars())
        outdated = or_(t.next_offset.not_in(kept), t.log_id != log_id)
        connection.execute(delete(_snapshots).where(*of_service, outdated))

    def _at(self, service: str, next_offset: int) -> tuple[ColumnElement[bool], ...]:
        t = _snapshots.c
        return (t.cell == self._cell, t.service == service, t.next_offset == next_offset)


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _engine(url: str) -> Engine:
    engine = create_engine(url, pool_pre_ping=True)
    if engine.dialect.name == "sqlite":
        if engine.url.database:
            Path(engine.url.database).parent.mkdir(parents=True, exist_ok=True)
        event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _prepare_sqlite(connection: DBAPIConnection, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA busy_timeout = 30000")
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = NORMAL")
    cursor.close()
