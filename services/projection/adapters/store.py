"""The read models in SQL: the rows, and the position that they are at, changed together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from libs.contracts.read_models import Row
from services.projection.adapters.engine import open_engine, without_nul
from services.projection.adapters.upsert import insert_into, upsert
from services.projection.core import FOLD_VERSION, Rows
from services.projection.core.rows import Key
from services.projection.tables import TABLES, checkpoint, metadata

MIGRATIONS = Path(__file__).parent.parent / "migrations"
_KEYS_PER_QUERY = 500
_MIGRATION_LOCK = 0x53616E6A


class AnotherWriter(Exception):
    """The position moved although this projection did not move it: another one writes the same database."""


class WrongCell(Exception):
    """The database holds the read models of another cell."""


@dataclass(frozen=True)
class Checkpoint:
    """How far the read models are."""

    next_offset: int
    """Every control record before it is in the tables."""
    log_id: str
    """Id of the log's first event; empty before the first one. Tells one log from another."""
    fold_version: int = FOLD_VERSION
    """Of the fold that made the rows."""


class Store:
    """One database of read models, for one cell. Blocking: call it in a thread."""

    def __init__(self, url: str, cell: str) -> None:
        self.cell = cell
        self.engine = open_engine(url)

    def migrate(self) -> None:
        """Bring the tables to today's form, in one transaction; data stays. A second process waits."""
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        with self.engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
            else:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            config.attributes["connection"] = connection
            command.upgrade(config, "head")

    def checkpoint(self) -> Checkpoint:
        """Where the read models are; 0 for an empty database.

        Raises:
            WrongCell: the database belongs to another cell.
        """
        with self.engine.connect() as connection:
            row = connection.execute(sa.select(checkpoint)).one_or_none()
        if row is None:
            return Checkpoint(0, "")
        if row.cell != self.cell:
            raise WrongCell(
                f"the database holds the read models of cell {row.cell!r}, this projection is of {self.cell!r}"
            )
        return Checkpoint(row.next_offset, row.log_id, row.fold_version)

    def reset(self) -> None:
        """Forget everything: the next record is the first. Readers see the old rows or none."""
        with self.engine.begin() as connection:
            for table in metadata.sorted_tables:
                connection.execute(table.delete())

    def load(self, row_type: type[Row], keys: list[Key]) -> Iterable[Row]:
        """Rows by primary key, for `Rows`."""
        table = TABLES[row_type]
        columns = [table.c[name] for name in row_type.key]
        with self.engine.connect() as connection:
            for chunk in _chunks(keys):
                wanted = columns[0].in_([key[0] for key in chunk])
                if len(columns) > 1:
                    wanted = sa.tuple_(*columns).in_(chunk)
                for found in connection.execute(sa.select(table).where(wanted)):
                    yield msgspec.convert(dict(zip(row_type.__struct_fields__, found, strict=True)), row_type)

    def save(self, rows: Rows, before: Checkpoint, after: Checkpoint, now_s: float) -> None:
        """Store what changed and move the position, or nothing of it.

        Raises:
            AnotherWriter: the position is not `before` any more.
        """
        with self.engine.begin() as connection:
            self._move(connection, before, after, now_s)
            for row_type, changed in rows.changed():
                table = TABLES[row_type]
                values = [_values(row) for row in changed]
                connection.execute(upsert(self.engine.dialect.name, table), values)

    def _move(self, connection: sa.Connection, before: Checkpoint, after: Checkpoint, now_s: float) -> None:
        values: dict[str, Any] = {
            "next_offset": after.next_offset,
            "log_id": after.log_id,
            "fold_version": after.fold_version,
            "changed_s": now_s,
        }
        mine = (checkpoint.c.cell == self.cell) & (checkpoint.c.next_offset == before.next_offset)
        if connection.execute(checkpoint.update().where(mine).values(values)).rowcount:
            return
        if before.next_offset or not self._first(connection, values):
            raise AnotherWriter(
                f"the read models of cell {self.cell} are not at offset {before.next_offset} any more: "
                "another projection writes this database; run only one"
            )

    def _first(self, connection: sa.Connection, values: dict[str, Any]) -> bool:
        """Write the first position; False when there is one already."""
        insert = insert_into(connection.dialect.name, checkpoint).values(cell=self.cell, **values)
        return connection.execute(insert.on_conflict_do_nothing().returning(checkpoint.c.cell)).first() is not None

    def close(self) -> None:
        """Give back the connections."""
        self.engine.dispose()


def _values(row: Row) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.structs.asdict(row)
    for name, value in values.items():
        if isinstance(value, str) and "\0" in value:
            values[name] = without_nul(value)
    return values


def _chunks(keys: list[Key]) -> Iterator[list[Key]]:
    for start in range(0, len(keys), _KEYS_PER_QUERY):
        yield keys[start : start + _KEYS_PER_QUERY]
