"""Arrow schemas as schemas of data: an IPC file with a schema, as `pyarrow.Schema.serialize` makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libs.contracts.bad_input import BadInput
from libs.datasets.schema import Column, DataSchema, Kind

if TYPE_CHECKING:
    import pyarrow

RANGE = ("minimum", "maximum")
"""Keys of a field's metadata that bound its values."""


def schema_of_arrow(data: bytes, where: str) -> DataSchema:
    """The schema of an IPC message: names, exact types, nulls; ranges from the metadata `minimum` and `maximum`.

    Raises:
        BadInput: it is none.
    """
    import pyarrow

    try:
        found = pyarrow.ipc.read_schema(pyarrow.BufferReader(data))
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise BadInput(where, str(error), "an Arrow schema (IPC), or a JSON Schema") from None
    return DataSchema(columns=tuple(_column(field, where) for field in found), closed=True)


def kind_of(arrow_type: pyarrow.DataType) -> Kind | None:
    """Which kind of values an Arrow type has; None: one that JSON Schema has no word for, such as a date."""
    from pyarrow import types

    if types.is_dictionary(arrow_type):
        return kind_of(arrow_type.value_type)
    tests = {
        Kind.BOOLEAN: types.is_boolean,
        Kind.INTEGER: types.is_integer,
        Kind.NUMBER: lambda each: types.is_floating(each) or types.is_decimal(each),
        Kind.STRING: lambda each: types.is_string(each) or types.is_large_string(each) or types.is_string_view(each),
        Kind.BYTES: lambda each: (
            types.is_binary(each) or types.is_large_binary(each) or types.is_fixed_size_binary(each)
        ),
        Kind.ARRAY: lambda each: types.is_list(each) or types.is_large_list(each) or types.is_fixed_size_list(each),
        Kind.OBJECT: types.is_struct,
    }
    return next((kind for kind, test in tests.items() if test(arrow_type)), None)


def _column(field: pyarrow.Field, where: str) -> Column:
    bounds = {}
    for key in RANGE:
        text = (field.metadata or {}).get(key.encode())
        try:
            bounds[key] = None if text is None else float(text)
        except ValueError:
            raise BadInput(f"{where}: {field.name}: metadata {key}", repr(text), "a number") from None
    return Column(
        name=field.name,
        kind=kind_of(field.type),
        nullable=field.nullable,
        minimum=bounds["minimum"],
        maximum=bounds["maximum"],
        arrow_type=str(field.type),
    )
