"""The generations of the read model in one database: the live one, one that is built beside it, past ones."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy as sa

from services.projection.adapters.engine import open_engine
from services.projection.adapters.read_model import AnotherWriter, Checkpoint, ReadModel, WrongCell
from services.projection.digest import read_model_digest
from services.projection.tables import BUILDING, LIVE, NAMES, PAST_PREFIX, Generation

_LOCK = 0x53616E6A
_SWAP_WAITS_MS = 200
"""Most that a swap waits for a reader on PostgreSQL: the readers behind it wait as long. It is below
`deadlock_timeout` (1 s), so that a reader and a swap that wait for each other never end in an error of the reader."""
_OF_REVISIONS = "alembic_version"
"""A table beside read models that were made before there was a digest."""


@dataclass(frozen=True)
class Found:
    """The read models that a database has."""

    live: Checkpoint | None
    """What is read; None: there is nothing."""
    building: Checkpoint | None
    """What was begun beside it."""


class Store:
    """One database of read models, for one cell. Blocking: call it in a thread.

    Args:
        url: SQLAlchemy URL.
        cell: that the rows are of.
        digest: of the tables and the fold of this projection; None: that of the code at hand.
    """

    def __init__(self, url: str, cell: str, digest: str | None = None) -> None:
        self.cell = cell
        self.digest = read_model_digest() if digest is None else digest
        self.engine = open_engine(url)
        self.live = ReadModel(self.engine, cell, self.digest, LIVE)
        self.building = ReadModel(self.engine, cell, self.digest, BUILDING)

    def found(self) -> Found:
        """What there is now, of any version.

        Raises:
            WrongCell: the database belongs to another cell.
        """
        with self._changing() as connection:
            names = _names(connection)
            return Found(self._checkpoint(connection, LIVE, names), self._checkpoint(connection, BUILDING, names))

    def build(self, *, anew: bool = False) -> None:
        """Make empty tables beside the live ones.

        Args:
            anew: also where such tables have been begun with this digest; else those stay as they are. What another
                version has begun goes.
        """
        with self._changing() as connection:
            names = _names(connection)
            begun = self._checkpoint(connection, BUILDING, names)
            if begun is not None and begun.digest == self.digest and not anew:
                return
            _put_aside(connection, _with_prefix(names, BUILDING.prefix))
            fresh = Generation(BUILDING.prefix, _token())
            fresh.metadata.create_all(connection, checkfirst=False)
            first = {"cell": self.cell, "next_offset": 0, "log_id": "", "changed_s": 0.0}
            made_by = {"digest": self.digest, "tables": ",".join(NAMES)}
            connection.execute(fresh.checkpoint.insert().values(**first, **made_by))

    def swap(self, instead_of: Found | None = None) -> bool:
        """Put what was built in the place of the live tables, in one transaction: a reader sees the old or the new.

        Args:
            instead_of: the look that has found the live ones absent or wrong: they are replaced even where they are
                ahead, if they are as they were then.

        Returns:
            False when nothing was swapped: the live position is ahead, and stays where it is from now on, or a reader
            did not let go of the tables in time. Try again, after reading on.

        Raises:
            AnotherWriter: what was built has gone, or was made by another version; or the live ones are not wrong now.
        """
        try:
            with self._changing() as connection:
                names = _names(connection)
                old = [name for name in self._live_tables(connection, names) if name in names]
                if connection.dialect.name == "postgresql":
                    _lock(connection, old)
                new = self._checkpoint(connection, BUILDING, names)
                if new is None or new.digest != self.digest:
                    raise AnotherWriter(
                        "the read model that was built is not there any more: another projection has swapped it in "
                        "or has begun its own"
                    )
                live = self._checkpoint(connection, LIVE, names)
                if instead_of is not None and live != instead_of.live:
                    raise AnotherWriter("the read models were wrong, and have been replaced by another projection")
                if instead_of is None and live is not None and live.next_offset > new.next_offset:
                    if live.digest:  # a projection that keeps it ahead stops: its own save does not fit any more
                        connection.execute(LIVE.checkpoint.update().values(digest=""))
                    return False
                _put_aside(connection, [*old, *({_OF_REVISIONS} & set(names))])
                for name in NAMES:
                    _rename(connection, BUILDING.prefix + name, name)
                return True
        except sa.exc.OperationalError as error:
            if getattr(error.orig, "sqlstate", None) == _LOCK_NOT_AVAILABLE:
                return False
            raise

    def tidy(self, *, building: bool = False) -> None:
        """Drop past generations and, when told to, what was begun beside the live one.

        Each table is dropped by itself: on SQLite, where one writes at a time, the gateway's own writes wait no longer
        than for one. A view of the user's goes with the table that it stands on.
        """
        with self._changing() as connection:
            if building:
                _put_aside(connection, _with_prefix(_names(connection), BUILDING.prefix))
            past = _with_prefix(_names(connection), PAST_PREFIX)
        cascade = " CASCADE" if self.engine.dialect.name == "postgresql" else ""
        for name in past:
            with self._changing() as connection:
                connection.exec_driver_sql(f"DROP TABLE IF EXISTS {name}{cascade}")

    def close(self) -> None:
        """Give back the connections."""
        self.engine.dispose()

    def _checkpoint(self, connection: sa.Connection, tables: Generation, names: Sequence[str]) -> Checkpoint | None:
        """Position of a generation that any version may have made; None where there is none."""
        table = tables.checkpoint
        if table.name not in names:
            return None
        columns = {column["name"] for column in sa.inspect(connection).get_columns(table.name)}
        known = [name for name in ("cell", "next_offset", "log_id", "digest", "tables") if name in columns]
        row = connection.execute(sa.select(*(table.c[name] for name in known))).mappings().first()
        if row is None:
            return None
        if row["cell"] != self.cell:
            raise WrongCell(
                f"the database holds the read models of cell {row['cell']!r}, this projection is of {self.cell!r}"
            )
        is_whole = {tables.prefix + name for name in row.get("tables", "").split(",")} <= set(names)
        return Checkpoint(row["next_offset"], row["log_id"], row.get("digest", "") if is_whole else "")

    def _live_tables(self, connection: sa.Connection, names: Sequence[str]) -> list[str]:
        """What the live read model is made of, by this version and by the one that made it; the checkpoint first."""
        table = LIVE.checkpoint
        found = list(NAMES)
        if table.name in names and "tables" in {c["name"] for c in sa.inspect(connection).get_columns(table.name)}:
            for listed in connection.execute(sa.select(table.c.tables)).scalars():
                found += listed.split(",")
        return list(dict.fromkeys(found))

    @contextmanager
    def _changing(self) -> Iterator[sa.Connection]:
        """One transaction that no other projection's look at the generations, or change of them, runs beside."""
        with self.engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
            else:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection


_LOCK_NOT_AVAILABLE = "55P03"
"""PostgreSQL: a lock was not had within `lock_timeout`."""


def _names(connection: sa.Connection) -> list[str]:
    return sorted(sa.inspect(connection).get_table_names())


def _with_prefix(names: Sequence[str], prefix: str) -> list[str]:
    return [name for name in names if name.startswith(prefix)]


def _lock(connection: sa.Connection, names: Sequence[str]) -> None:
    """Keep readers out until the end of the transaction. The first is the checkpoint: a reader that must see one
    moment in all its selects locks it before the first of them, and so never waits for a table while it has another."""
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_SWAP_WAITS_MS}")
    for name in names:
        connection.exec_driver_sql(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE")


def _rename(connection: sa.Connection, before: str, after: str) -> None:
    connection.exec_driver_sql(f"ALTER TABLE {before} RENAME TO {after}")


def _put_aside(connection: sa.Connection, names: Sequence[str]) -> None:
    """Give tables names under which they are dropped: at once where it matters, and each alone later."""
    token = _token()
    for name in names:
        _rename(connection, name, f"{PAST_PREFIX}{token}_{name.removeprefix(BUILDING.prefix)}")


def _token() -> str:
    return uuid.uuid4().hex[:8]
