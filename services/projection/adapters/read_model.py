"""One generation of the read model: its rows, and the position that they are at, changed together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa

from libs.contracts.read_models import Row
from services.projection.adapters.engine import without_nul
from services.projection.adapters.upsert import upsert
from services.projection.core import Rows
from services.projection.core.rows import Key
from services.projection.tables import Generation

_KEYS_PER_QUERY = 500


class AnotherWriter(Exception):
    """Another projection writes the same database: the position, or the tables, are not as this one has left them."""


class WrongCell(Exception):
    """The database holds the read models of another cell."""


@dataclass(frozen=True)
class Checkpoint:
    """How far a read model is, and what it was made by."""

    next_offset: int
    """Every control record before it is in the tables."""
    log_id: str
    """Id of the log's first event; empty before the first one. Tells one log from another."""
    digest: str
    """Of the tables and the fold; empty where it is unknown: made before there was one, or a table is missing."""


class ReadModel:
    """The tables of one generation, for one cell. Blocking: call it in a thread.

    Args:
        engine: of the database.
        cell: that the rows are of.
        digest: of this projection. A read model that has another one is not touched.
        tables: the generation.
    """

    def __init__(self, engine: sa.Engine, cell: str, digest: str, tables: Generation) -> None:
        self.engine, self.cell, self.digest, self.tables = engine, cell, digest, tables
        self._upserts = {row_type: upsert(engine.dialect, table) for row_type, table in tables.of.items()}

    def checkpoint(self) -> Checkpoint:
        """Where the read model is.

        Raises:
            AnotherWriter: it has been made by another version.
        """
        column = self.tables.checkpoint.c
        with self.engine.connect() as connection:
            found = connection.execute(sa.select(column.next_offset, column.log_id, column.digest)).one()
        if found.digest != self.digest:
            raise AnotherWriter(
                f"the read models of cell {self.cell} have digest {found.digest} now, this projection's is "
                f"{self.digest}: another version of the projection writes this database"
            )
        return Checkpoint(*found)

    def is_there(self) -> bool:
        """Whether the database has it, made by whatever version."""
        return sa.inspect(self.engine).has_table(self.tables.checkpoint.name)

    def load(self, row_type: type[Row], keys: list[Key]) -> Iterable[Row]:
        """Rows by primary key, for `Rows`."""
        table = self.tables.of[row_type]
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
            AnotherWriter: the position is not `before` any more, or the rows are of another version.
        """
        with self.engine.begin() as connection:
            self._move(connection, before, after, now_s)
            for row_type, changed in rows.changed():
                connection.execute(self._upserts[row_type], [_values(row) for row in changed])

    def _move(self, connection: sa.Connection, before: Checkpoint, after: Checkpoint, now_s: float) -> None:
        table = self.tables.checkpoint
        mine = (table.c.cell == self.cell) & (table.c.digest == self.digest)
        moved = {"next_offset": after.next_offset, "log_id": after.log_id, "changed_s": now_s}
        update = table.update().where(mine & (table.c.next_offset == before.next_offset)).values(moved)
        if not connection.execute(update).rowcount:
            raise AnotherWriter(
                f"the read models of cell {self.cell} are not at offset {before.next_offset} of digest {self.digest} "
                "any more: another projection writes this database; run only one"
            )


def _values(row: Row) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.structs.asdict(row)
    for name, value in values.items():
        if isinstance(value, str) and "\0" in value:
            values[name] = without_nul(value)
    return values


def _chunks(keys: list[Key]) -> Iterator[list[Key]]:
    for start in range(0, len(keys), _KEYS_PER_QUERY):
        yield keys[start : start + _KEYS_PER_QUERY]
