"""The SQL tables of the read models, one per row class, on SQLite and PostgreSQL alike.

Columns follow from the row classes; the revisions in `migrations/` say the same once more, explicitly, and a
test holds the two against each other.
"""

from __future__ import annotations

import types
from enum import StrEnum
from typing import Any, Union, get_args, get_origin, get_type_hints

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from libs.contracts import read_models
from libs.contracts.read_models import CHECKPOINT_TABLE, ROW_TYPES, Row

metadata = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    }
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


def _table(row_type: type[Row]) -> sa.Table:
    hints = get_type_hints(row_type, vars(read_models))
    columns = []
    for name in row_type.__struct_fields__:
        column_type, nullable = _column_type(hints[name])
        primary = name in row_type.key
        columns.append(sa.Column(name, column_type, nullable=nullable, primary_key=primary, autoincrement=False))
    return sa.Table(row_type.table, metadata, *columns)


TABLES: dict[type[Row], sa.Table] = {row_type: _table(row_type) for row_type in ROW_TYPES}

jobs = TABLES[read_models.JobRow]
events = TABLES[read_models.EventRow]
sweeps = TABLES[read_models.SweepRow]
trials = TABLES[read_models.TrialRow]

sa.Index(None, jobs.c.state, jobs.c.arrived_offset)
sa.Index(None, jobs.c.tenant, jobs.c.arrived_offset)
sa.Index(None, jobs.c.arrived_offset)
sa.Index(None, jobs.c.name)
sa.Index(None, events.c.job_id, events.c.log_offset)
sa.Index(None, events.c.node_id, events.c.log_offset)
sa.Index(None, events.c.type, events.c.log_offset)
sa.Index(None, events.c.id)
sa.Index(None, TABLES[read_models.LabelRow].c.name, TABLES[read_models.LabelRow].c.value)
sa.Index(None, TABLES[read_models.GpuRow].c.job_id)
sa.Index(None, sweeps.c.state, sweeps.c.arrived_offset)
sa.Index(None, sweeps.c.arrived_offset)
sa.Index(None, sweeps.c.name)
sa.Index(None, trials.c.sweep_id, trials.c.number)

checkpoint = sa.Table(
    CHECKPOINT_TABLE,
    metadata,
    sa.Column("cell", sa.Text(), primary_key=True),
    sa.Column("next_offset", sa.BigInteger(), nullable=False),
    sa.Column("log_id", sa.Text(), nullable=False),
    sa.Column("fold_version", sa.BigInteger(), nullable=False),
    sa.Column("changed_s", sa.Double(), nullable=False),
)
