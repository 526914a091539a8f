"""The read models' tables as the gateway reads them: one column per field of the row classes."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from libs.contracts import read_models
from libs.contracts.read_models import CHECKPOINT_TABLE, Row

R = TypeVar("R", bound=Row)

_JSON = sa.JSON().with_variant(JSONB(), "postgresql")
_SCALARS: dict[Any, Any] = {str: sa.Text(), int: sa.BigInteger(), float: sa.Double(), bool: sa.Boolean()}


def _column_type(hint: Any) -> Any:
    if get_origin(hint) in (Union, UnionType):
        members = [member for member in get_args(hint) if member is not type(None)]
        hint = members[0] if len(members) == 1 else None
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return sa.Text()
    return _SCALARS.get(hint, _JSON)


def table_of(row_type: type[Row]) -> sa.TableClause:
    """What a query over these rows names."""
    hints = get_type_hints(row_type, vars(read_models))
    columns = [sa.column(name, _column_type(hints[name])) for name in row_type.__struct_fields__]
    return sa.table(row_type.table, *columns)


jobs = table_of(read_models.JobRow)
attempts = table_of(read_models.AttemptRow)
holdings = table_of(read_models.HoldingRow)
job_labels = table_of(read_models.LabelRow)
nodes = table_of(read_models.NodeRow)
gpus = table_of(read_models.GpuRow)
tenants = table_of(read_models.TenantRow)
events = table_of(read_models.EventRow)
event_counts = table_of(read_models.EventCountRow)
profiles = table_of(read_models.ProfileRow)
settings = table_of(read_models.SettingRow)
failure_notices = table_of(read_models.FailureNoticeRow)
reports = table_of(read_models.ReportRow)
sweeps = table_of(read_models.SweepRow)
trials = table_of(read_models.TrialRow)
job_groups = table_of(read_models.GroupRow)
checkpoint = sa.table(
    CHECKPOINT_TABLE,
    sa.column("cell"),
    sa.column("next_offset", sa.BigInteger()),
    sa.column("log_id"),
    sa.column("changed_s", sa.Double()),
)
HOLD_TABLES = sa.text(f"LOCK TABLE {CHECKPOINT_TABLE} IN ACCESS SHARE MODE")
"""PostgreSQL: the first statement of a transaction with selects of one moment. The projection swaps all tables by
names, at once, for which it needs this one first; so they stay until the transaction ends. The moment is that of the
first select, and so not before the tables were there."""


def rows_of(row_type: type[R], found: Iterable[Any]) -> list[R]:
    """Rows of a `select` over the whole table, in its order."""
    names = row_type.__struct_fields__
    return [msgspec.convert(dict(zip(names, values, strict=True)), row_type) for values in found]
