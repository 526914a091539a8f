"""Parquet: columns and types by the footers of all files; then values, where something is asked of them."""

from __future__ import annotations

from typing import Any

import pyarrow
import pyarrow.parquet

from libs.datasets.findings import Findings
from libs.datasets.schema import Column, DataSchema
from libs.datasets.values import check_values, type_fits

BATCH_ROWS = 131_072
BROKEN = (pyarrow.ArrowException, OSError)
"""What a file that is not whole leads to."""


def check_footer(findings: Findings, schema: DataSchema, path: str) -> None:
    """Check what the footer of one file says: that it is there, names and types of the columns."""
    try:
        found = pyarrow.parquet.read_schema(path)
    except BROKEN as error:
        findings.add(path, None, "", _first_line(error), "a whole Parquet file")
        return
    there = findings.check_names(schema, path, found.names)
    for column in [column for column in schema.columns if column.name in there]:
        if not type_fits(column, found.field(column.name).type):
            findings.add(path, None, column.name, str(found.field(column.name).type), column.expected)


def check_parquet(findings: Findings, schema: DataSchema, path: str) -> None:
    """Check the values of one file, with a footer that is as it should be."""
    try:
        file = pyarrow.parquet.ParquetFile(path)
    except BROKEN as error:
        findings.add(path, None, "", _first_line(error), "a whole Parquet file")
        return
    with file:
        there = file.schema_arrow.names
        asked = [column for column in schema.columns if column.name in there and _asks(file, column)]
        findings.rows += _check_groups(findings, path, file, asked) if asked else file.metadata.num_rows


def _asks(file: Any, column: Column) -> bool:
    """Whether values have to be read; that there are no nulls is known from the footer where it has statistics."""
    return _asks_of_values(column) or (not column.nullable and not _has_no_nulls(file.metadata, column.name))


def _asks_of_values(column: Column) -> bool:
    """Whether something is asked of the values beside their type."""
    bounds = (column.minimum, column.maximum, column.above, column.below, column.min_length, column.max_length)
    inner = any(_asks_of_values(field) or not field.nullable for field in column.fields) or column.items is not None
    return any(bound is not None for bound in bounds) or bool(column.values or column.pattern or column.shape) or inner


def _has_no_nulls(metadata: Any, name: str) -> bool:
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        chunks = [row_group.column(index) for index in range(row_group.num_columns)]
        chunk = next((chunk for chunk in chunks if chunk.path_in_schema == name), None)
        if chunk is None or chunk.statistics is None or chunk.statistics.null_count != 0:
            return False
    return True


def _check_groups(findings: Findings, path: str, file: Any, columns: list[Column]) -> int:
    """Rows that were looked at."""
    row: int = 1
    try:
        for batch in file.iter_batches(BATCH_ROWS, columns=[column.name for column in columns]):
            for column in columns:
                check_values(findings, path, column, batch.column(column.name), row)
            row += int(batch.num_rows)
            if findings.is_full:
                return row - 1
    except BROKEN as error:
        findings.add(path, row, "", _first_line(error), "a whole Parquet file: the rows from here on cannot be read")
    return row - 1


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
