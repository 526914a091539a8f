"""The SQL tables of the read models, one per row class, on SQLite and PostgreSQL alike.

Columns follow from the row classes, and nothing else has to be told of a new one. A database can hold several
generations of them at a time; the names of their tables differ by a prefix.
"""

from __future__ import annotations

import types
from enum import StrEnum
from typing import Any, Union, get_args, get_origin, get_type_hints

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from libs.contracts import read_models
from libs.contracts.read_models import (
    CHECKPOINT_TABLE,
    ROW_TYPES,
    EventRow,
    GpuRow,
    GroupRow,
    HoldingRow,
    JobRow,
    LabelRow,
    Row,
    SweepRow,
    TrialRow,
)

JSON = sa.JSON().with_variant(JSONB(), "postgresql")


def _column_type(hint: Any) -> tuple[Any, bool]:
    """SQL type of an annotation, and whether it may be NULL."""
    if get_origin(hint) in (Union, types.UnionType):
        members = [member for member in get_args(hint) if member is not type(None)]
        if len(members) == 1:
            return _column_type(members[0])[0], True
        return JSON, False
    if get_origin(hint) in (list, dict):
        return JSON, False
    if issubclass(hint, StrEnum):
        return sa.Text(), False
    return {str: sa.Text(), int: sa.BigInteger(), float: sa.Double(), bool: sa.Boolean()}[hint], False


INDEXES: tuple[tuple[type[Row], tuple[str, ...]], ...] = (
    (JobRow, ("state", "arrived_offset")),
    (JobRow, ("tenant", "arrived_offset")),
    (JobRow, ("arrived_offset",)),
    (JobRow, ("name",)),
    (JobRow, ("group_id", "group_index")),
    (GroupRow, ("arrived_offset",)),
    (GroupRow, ("name",)),
    (EventRow, ("job_id", "log_offset")),
    (EventRow, ("node_id", "log_offset")),
    (EventRow, ("type", "log_offset")),
    (EventRow, ("id",)),
    (HoldingRow, ("end_s",)),
    (LabelRow, ("name", "value")),
    (GpuRow, ("job_id",)),
    (SweepRow, ("state", "arrived_offset")),
    (SweepRow, ("arrived_offset",)),
    (SweepRow, ("name",)),
    (TrialRow, ("sweep_id", "number")),
)
"""(Row class, columns) of every index beside the primary keys."""


class Generation:
    """The tables of one generation of the read models.

    Args:
        prefix: of the tables' names.
        token: what the names of its indexes and constraints end in. They are unique in a database and stay as they are
            when tables are renamed, so no two generations may be created with the same one.
    """

    def __init__(self, prefix: str = "", token: str = "") -> None:
        self.prefix, self._end = prefix, f"_{token}" if token else ""
        self.metadata = sa.MetaData()
        self.of: dict[type[Row], sa.Table] = {row_type: self._of_rows(row_type) for row_type in ROW_TYPES}
        """The table of each row class."""
        self.checkpoint = self._table(
            CHECKPOINT_TABLE,
            sa.Column("cell", sa.Text(), primary_key=True),
            sa.Column("next_offset", sa.BigInteger(), nullable=False),
            sa.Column("log_id", sa.Text(), nullable=False),
            sa.Column("digest", sa.Text(), nullable=False),
            sa.Column("tables", sa.Text(), nullable=False),
            sa.Column("changed_s", sa.Double(), nullable=False),
        )
        for row_type, names in INDEXES:
            columns = [self.of[row_type].c[name] for name in names]
            sa.Index(f"ix_{row_type.table}_{'_'.join(names)}{self._end}", *columns)

    def _of_rows(self, row_type: type[Row]) -> sa.Table:
        hints = get_type_hints(row_type, vars(read_models))
        columns = []
        for name in row_type.__struct_fields__:
            column_type, nullable = _column_type(hints[name])
            primary = name in row_type.key
            columns.append(sa.Column(name, column_type, nullable=nullable, primary_key=primary, autoincrement=False))
        return self._table(row_type.table, *columns)

    def _table(self, name: str, *columns: sa.Column[Any]) -> sa.Table:
        table = sa.Table(self.prefix + name, self.metadata, *columns)
        table.primary_key.name = f"pk_{name}{self._end}"
        return table


LIVE = Generation()
"""What the gateway reads, and any query of users."""
BUILDING = Generation("sanjaya_next_")
"""What is built beside it, to take its place."""
PAST_PREFIX = "sanjaya_past_"
"""Of tables that others have replaced; they are dropped."""
NAMES = (CHECKPOINT_TABLE, *sorted(row_type.table for row_type in ROW_TYPES))
"""Of the live tables, the checkpoint first."""


def schema_of(generation: Generation) -> str:
    """The tables in words, as the digest has them: columns, types, keys and indexes."""
    lines = []
    for table in generation.metadata.sorted_tables:
        lines += [f"{table.name}.{c.name} {c.type!r} null={c.nullable} key={c.primary_key}" for c in table.columns]
        lines += sorted(f"{table.name}({', '.join(column.name for column in ix.columns)})" for ix in table.indexes)
    return "\n".join(lines)
