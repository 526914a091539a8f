"""Checks values column by column, in Arrow's vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pyarrow
import pyarrow.compute as pc

from libs.datasets.arrow_schema import kind_of
from libs.datasets.findings import Findings
from libs.datasets.schema import Column, Kind

Wrong = tuple[Any, str]
"""A mask over the values, and what was expected of them."""
Rows = Callable[[int], int]
"""The row of a value by its place."""


def type_fits(column: Column, found: pyarrow.DataType) -> bool:
    """Whether a column of this Arrow type may be what the schema says."""
    if column.arrow_type:
        return str(found) == column.arrow_type
    kind = kind_of(found)
    return column.kind is None or kind is column.kind or (column.kind is Kind.NUMBER and kind is Kind.INTEGER)


def check_values(findings: Findings, file: str, column: Column, values: Any, first_row: int) -> None:
    """Compare the values of a column with the schema.

    Args:
        findings: gets what is wrong.
        file: where they stand.
        column: the schema's.
        values: an Arrow array of a type that fits.
        first_row: the row of the first of them, counted from 1.
    """
    if pyarrow.types.is_dictionary(values.type):
        values = pc.cast(values, values.type.value_type)
    for mask, expected in _wrong(column, values):
        _report(findings, file, column, values, mask, expected, lambda index: first_row + index)
    if column.kind is Kind.ARRAY and (column.shape or column.items is not None):
        _check_items(findings, file, column, values, first_row)
    for field in column.fields if column.kind is Kind.OBJECT else ():
        _check_field(findings, file, column, field, values, first_row)


def _wrong(column: Column, values: Any) -> Iterator[Wrong]:
    if not column.nullable and values.null_count:
        yield pc.is_null(values), f"{column.expected}, and no null"
    if column.kind in (Kind.INTEGER, Kind.NUMBER):
        yield from _outside(column, values)
    if column.values:
        allowed = pyarrow.array(column.values)
        yield pc.invert(pc.is_in(values, value_set=pc.cast(allowed, values.type))), f"one of {_listed(column)}"
    if column.pattern:
        yield pc.invert(pc.match_substring_regex(values, column.pattern)), f"text that matches {column.pattern}"
    least, most = column.min_length, column.max_length
    if least is not None:
        yield pc.less(_lengths(column, values), least), f"a length of {least} or more"
    if most is not None:
        yield pc.greater(_lengths(column, values), most), f"a length of {most} or less"


def _outside(column: Column, values: Any) -> Iterator[Wrong]:
    tests = (
        (column.minimum, pc.less, "{:g} or more"),
        (column.maximum, pc.greater, "{:g} or less"),
        (column.above, pc.less_equal, "more than {:g}"),
        (column.below, pc.greater_equal, "less than {:g}"),
    )
    bounded = False
    for bound, test, expected in tests:
        if bound is not None:
            bounded = True
            yield test(values, bound), expected.format(bound)
    if bounded and pyarrow.types.is_floating(values.type):
        yield pc.is_nan(values), f"{column.expected} within its range"


def _lengths(column: Column, values: Any) -> Any:
    if column.kind is Kind.ARRAY:
        return pc.list_value_length(values)
    return pc.binary_length(values) if column.kind is Kind.BYTES else pc.utf8_length(values)


def _listed(column: Column) -> str:
    shown = ", ".join(map(str, column.values[:10]))
    return f"{shown}, … ({len(column.values)} values)" if len(column.values) > 10 else shown


def _report(findings: Findings, file: str, column: Column, values: Any, mask: Any, expected: str, rows: Rows) -> None:
    """Name the values of a mask that are wrong, with their rows."""
    if findings.is_full or not pc.any(mask).as_py():
        return
    for index in pc.indices_nonzero(mask)[: findings.room].to_pylist():
        findings.add(file, rows(index), column.name, values[index].as_py(), expected)


def _check_items(findings: Findings, file: str, column: Column, values: Any, first_row: int) -> None:
    """Of arrays, whatever their depth: lengths by the shape, then items."""
    parents = pc.add(pyarrow.array(range(len(values)), pyarrow.int64()), first_row)
    level = values
    for depth, length in enumerate(column.shape or (None,), 1):
        if kind_of(level.type) is not Kind.ARRAY:
            findings.add(file, None, column.name, str(values.type), f"an array of {len(column.shape)} dimensions")
            return
        if length is not None:
            mask = pc.not_equal(pc.list_value_length(level), length)
            _report(findings, file, column, level, mask, f"{length} items in dimension {depth}", _rows_of(parents))
        parents, level = pc.take(parents, pc.list_parent_indices(level)), pc.list_flatten(level)
    if column.items is None:
        return
    if not type_fits(column.items, level.type):
        findings.add(file, None, column.name, str(values.type), f"items: {column.items.expected}")
        return
    for mask, expected in _wrong(column.items, level):
        _report(findings, file, column, level, mask, f"items: {expected}", _rows_of(parents))


def _rows_of(parents: Any) -> Rows:
    return lambda index: int(parents[index].as_py())


def _check_field(findings: Findings, file: str, column: Column, field: Column, values: Any, first_row: int) -> None:
    named = msgspec.structs.replace(field, name=f"{column.name}.{field.name}")
    place = values.type.get_field_index(field.name)
    if place < 0:
        if field.required:
            findings.add(file, None, named.name, "no such field", field.expected)
        return
    inner = pc.struct_field(values, [place])
    if type_fits(field, inner.type):
        check_values(findings, file, named, inner, first_row)
    else:
        findings.add(file, None, named.name, str(inner.type), field.expected)
