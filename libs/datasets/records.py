"""Schemas as types of msgspec, which decodes and checks JSON in one go."""

from __future__ import annotations

import functools
import re
from typing import Annotated, Any, Literal

import msgspec

from libs.datasets.schema import Column, DataSchema, Kind

_PLACE = re.compile(r"^(.*?)(?: - at `\$(.*)`)?$", re.DOTALL)
_FIELD = re.compile(r"(missing required|unknown) field `(.*)`")
"""What msgspec says, and where; of a field that is not there, or should not be."""
_FIRST = re.compile(r"^\.?([^.\[]+)|^\[(?:'|\")?([^\]'\"]*)")


@functools.lru_cache
def type_of_rows(schema: DataSchema) -> Any:
    """The type of an object with a field per column."""
    return _object("Row", schema.columns, closed=schema.closed)


@functools.lru_cache
def type_of(column: Column) -> Any:
    """The type of a value of the column."""
    found = _bounded(column)
    return found | None if column.nullable else found


def place_of(error: msgspec.ValidationError) -> tuple[str, str]:
    """The column that the error is about, empty where it is about the row, and what was expected."""
    match = _PLACE.match(str(error))
    assert match is not None
    field = _FIELD.search(match[1])
    if field is not None:
        return field[2], "a value" if field[1] == "missing required" else "no such field"
    named = _FIRST.match(match[2] or "")
    return (named[1] or named[2] or "") if named else "", match[1]


def _object(name: str, columns: tuple[Column, ...], *, closed: bool) -> Any:
    fields: list[Any] = []
    for number, column in enumerate(columns):
        kind = type_of(column)
        optional = (kind | msgspec.UnsetType, msgspec.UNSET)
        fields.append((f"f{number}", kind) if column.required else (f"f{number}", *optional))
    renamed = {f"f{number}": column.name for number, column in enumerate(columns)}
    return msgspec.defstruct(name, fields, rename=renamed, forbid_unknown_fields=closed, kw_only=True, gc=False)


def _bounded(column: Column) -> Any:
    meta = {
        "ge": column.minimum,
        "le": column.maximum,
        "gt": column.above,
        "lt": column.below,
        "pattern": column.pattern or None,
        "min_length": column.min_length,
        "max_length": column.max_length,
    }
    given: dict[str, Any] = {name: bound for name, bound in meta.items() if bound is not None}
    if column.values:
        return Literal[column.values]
    if column.kind is Kind.INTEGER:
        given = {name: int(bound) if float(bound).is_integer() else bound for name, bound in given.items()}
    found = _plain(column)
    return Annotated[found, msgspec.Meta(**given)] if given else found


def _plain(column: Column) -> Any:
    if column.kind is Kind.OBJECT:
        return _object("Object", column.fields, closed=column.closed) if column.fields else dict
    if column.kind is Kind.ARRAY:
        found: Any = type_of(column.items) if column.items is not None else Any
        for length in reversed(column.shape):
            bound = msgspec.Meta(min_length=length, max_length=length)
            found = list[found] if length is None else Annotated[list[found], bound]
        return found if column.shape else list[found]
    plain = {Kind.INTEGER: int, Kind.NUMBER: float, Kind.STRING: str, Kind.BYTES: str, Kind.BOOLEAN: bool, None: Any}
    return plain[column.kind]
