"""What a schema says of data: read from a JSON Schema of one row, or from an Arrow schema (`arrow_schema.py`).

Known are the keywords of JSON Schema that say something of a value by itself. One that is not known is refused: a
schema that is only partly kept to would promise what is not checked. Beside them there are

- `x-shape` of an array (nested lists, or an `.npy` file): its lengths from the outermost on, null for any;
- `x-rows` of the whole: how many rows all files have together, a number or `{"minimum": …, "maximum": …}`;
- `format: binary` of a string: bytes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from libs.contracts.bad_input import BadInput

LONGEST = 262_144
"""Characters of a schema."""


class Kind(StrEnum):
    """What a value is."""

    INTEGER = "integer"
    NUMBER = "number"
    STRING = "string"
    BYTES = "bytes"
    BOOLEAN = "boolean"
    ARRAY = "array"
    OBJECT = "object"


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A column, a field of an object, or an item of an array."""

    name: str
    kind: Kind | None = None
    """None: any."""
    nullable: bool = False
    required: bool = True
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    """Values are greater than this one."""
    below: float | None = None
    values: tuple[str | int, ...] = ()
    """The only ones; none: any."""
    pattern: str = ""
    min_length: int | None = None
    """Characters, bytes or items."""
    max_length: int | None = None
    shape: tuple[int | None, ...] = ()
    """Of a nested array, from the outermost length on; empty: any."""
    items: Column | None = None
    fields: tuple[Column, ...] = ()
    closed: bool = False
    """An object has no other fields."""
    arrow_type: str = ""
    """The exact Arrow type; empty: any of the kind."""

    @property
    def expected(self) -> str:
        """The type in words."""
        word = self.arrow_type or (self.kind.value if self.kind is not None else "any value")
        return f"{word} or null" if self.nullable else word


class DataSchema(msgspec.Struct, frozen=True, kw_only=True):
    """What the rows of a data set are like."""

    columns: tuple[Column, ...]
    closed: bool = False
    """There are no other columns."""
    min_rows: int | None = None
    max_rows: int | None = None

    @property
    def names(self) -> list[str]:
        """The names of its columns, in order."""
        return [column.name for column in self.columns]


class _Rows(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    minimum: int | None = None
    maximum: int | None = None


class _Node(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The known keywords of JSON Schema."""

    dialect: str = msgspec.field(default="", name="$schema")
    id: str = msgspec.field(default="", name="$id")
    comment: str = msgspec.field(default="", name="$comment")
    title: str = ""
    description: str = ""
    default: Any = None
    examples: list[Any] = []
    type: str | list[str] = []
    format: str = ""
    properties: dict[str, _Node] = {}
    required: list[str] = []
    additional_properties: bool = True
    items: _Node | None = None
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: float | None = None
    exclusive_maximum: float | None = None
    enum: list[str | int | None] = []
    pattern: str = ""
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    shape: list[int | None] = msgspec.field(default_factory=list, name="x-shape")
    rows: int | _Rows | None = msgspec.field(default=None, name="x-rows")


_TYPES = tuple(kind.value for kind in Kind if kind is not Kind.BYTES)
KEYWORDS = tuple(field.encode_name for field in msgspec.structs.fields(_Node))


def schema_of(text: str | bytes, where: str) -> DataSchema:
    """The schema of a JSON document.

    Args:
        text: a JSON Schema of one row: of type `object`, with `properties`.
        where: what messages call it.

    Raises:
        BadInput: it is none; the message says where and what was expected.
    """
    expected = f"a JSON Schema of one row, with the keywords {', '.join(KEYWORDS)}"
    try:
        root = msgspec.json.decode(text, type=_Node)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInput(where, str(error), expected) from None
    if root.type not in ("object", ["object"]) or not root.properties:
        seen = f"type {root.type!r} with {len(root.properties)} properties"
        raise BadInput(where, seen, 'type "object" with `properties`: a row is an object with a field per column')
    rows = root.rows if isinstance(root.rows, _Rows) else _Rows(root.rows, root.rows)
    return DataSchema(
        columns=_fields(root, where),
        closed=not root.additional_properties,
        min_rows=rows.minimum,
        max_rows=rows.maximum,
    )


def _fields(node: _Node, where: str) -> tuple[Column, ...]:
    unknown = [name for name in node.required if name not in node.properties]
    if unknown:
        raise BadInput(f"{where}: required", repr(unknown[0]), f"one of {', '.join(node.properties)}")
    return tuple(
        _column(name, each, f"{where}: {name}", required=name in node.required)
        for name, each in node.properties.items()
    )


def _column(name: str, node: _Node, where: str, *, required: bool = True) -> Column:
    types = [node.type] if isinstance(node.type, str) else node.type
    kinds = [each for each in types if each != "null"]
    if len(kinds) > 1 or not set(kinds) <= set(_TYPES):
        raise BadInput(f"{where}: type", repr(node.type), f"one of {', '.join(_TYPES)}, alone or with null")
    kind = Kind(kinds[0]) if kinds else None
    if node.format == "binary" and kind is Kind.STRING:
        kind = Kind.BYTES
    values = tuple(value for value in node.enum if value is not None)
    column = Column(
        name=name,
        kind=kind,
        nullable="null" in types or None in node.enum or not types,
        required=required,
        minimum=node.minimum,
        maximum=node.maximum,
        above=node.exclusive_minimum,
        below=node.exclusive_maximum,
        values=values,
        pattern=node.pattern,
        min_length=node.min_items if kind is Kind.ARRAY else node.min_length,
        max_length=node.max_items if kind is Kind.ARRAY else node.max_length,
        shape=tuple(node.shape),
        items=_column(name, node.items, f"{where}: items") if node.items is not None else None,
        fields=_fields(node, where) if node.properties else (),
        closed=not node.additional_properties,
    )
    _check(column, where)
    return column


_NUMBERS, _TEXTS = (Kind.INTEGER, Kind.NUMBER), (Kind.STRING, Kind.BYTES, Kind.ARRAY)


def _check(column: Column, where: str) -> None:
    """Say which keyword cannot be kept to.

    Raises:
        BadInput: there is one.
    """
    ranged = [each for each in (column.minimum, column.maximum, column.above, column.below) if each is not None]
    lengths = [each for each in (column.min_length, column.max_length) if each is not None]
    if ranged and column.kind not in _NUMBERS:
        raise BadInput(where, f"a range of a column of type {column.expected}", "type integer or number")
    if lengths and column.kind not in _TEXTS:
        raise BadInput(where, f"lengths of a column of type {column.expected}", "type string or array")
    if column.pattern and column.kind is not Kind.STRING:
        raise BadInput(where, f"a pattern of a column of type {column.expected}", "type string")
    if column.values and column.kind not in (Kind.STRING, Kind.INTEGER):
        raise BadInput(where, f"enum of a column of type {column.expected}", "type string or integer")
    if any(isinstance(value, str) != (column.kind is Kind.STRING) for value in column.values):
        raise BadInput(f"{where}: enum", repr(list(column.values)), f"values of type {column.expected}")
    if column.shape and column.kind is not Kind.ARRAY:
        raise BadInput(where, f"a shape of a column of type {column.expected}", "type array")
    low = max((each for each in (column.minimum, column.above) if each is not None), default=None)
    high = min((each for each in (column.maximum, column.below) if each is not None), default=None)
    if low is not None and high is not None and low > high:
        raise BadInput(where, f"a range from {low:g} to {high:g}", "a minimum that is not above the maximum")


def json_schema_of(schema: DataSchema) -> str:
    """An Arrow schema as a JSON Schema: kinds instead of the exact types, which only files of Arrow's formats have.

    Raises:
        BadInput: a column has a type for which JSON Schema has no word.
    """
    nodes = {}
    for column in schema.columns:
        if column.kind is None:
            raise BadInput(column.name, f"Arrow type {column.arrow_type}", "a type that JSON Schema has as well")
        kind = Kind.STRING if column.kind is Kind.BYTES else column.kind
        node = _Node(
            type=[kind.value, "null"] if column.nullable else kind.value,
            format="binary" if column.kind is Kind.BYTES else "",
            minimum=column.minimum,
            maximum=column.maximum,
        )
        nodes[column.name] = {
            name: value for name, value in msgspec.to_builtins(node).items() if value not in (None, "", [], {}, True)
        }
    document = {
        "type": "object",
        "properties": nodes,
        "required": [column.name for column in schema.columns if column.required],
        "additionalProperties": not schema.closed,
    }
    return msgspec.json.encode(document).decode()
