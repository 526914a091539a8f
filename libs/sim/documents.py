"""JSON documents that users feed in: decoded strictly, and read field by field with errors that name the JSON path."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from types import EllipsisType
from typing import Any, TypeVar

from libs.contracts.bad_input import BadInput
from libs.sim.inputs import MOST_WHOLE, Warn, finite, open_input

T = TypeVar("T")
Given = EllipsisType
"""The type of `...`, the default of fields that must be given."""


def read_json(source: str | Path, form: str) -> tuple[Any, str]:
    """The decoded text of a file, or of standard input for `-`, and the name to use in messages.

    Raises:
        BadInput: it cannot be read, or is no JSON; NaN and Infinity are none.
    """
    with open_input(source) as (file, name):
        text = file.read()
    expected = f"a {form} document"
    if not text.strip():
        raise BadInput(name, "an empty file", expected)
    strange: list[str] = []

    def constant(word: str) -> float:
        strange.append(word)
        return float(word)

    try:
        document = json.loads(text, parse_constant=constant, object_pairs_hook=_each_once)
    except json.JSONDecodeError as error:
        what = (
            "it ends too early"
            if error.pos >= len(text.rstrip())
            else f"{error.msg.removesuffix(' at')}, column {error.colno}"
        )
        raise BadInput(f"{name}:{error.lineno}", f"no JSON: {what}", expected) from None
    except RecursionError:
        raise BadInput(name, "no JSON: nested too deeply", expected) from None
    except ValueError as error:
        raise BadInput(name, f"no JSON: {error}", expected) from None
    if strange:
        path = next(_not_finite(document, "$"), "$")
        raise BadInput(f"{name}: {path}", f"{strange[0]}, which is no JSON", "a finite number")
    return document, name


def _each_once(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(fields)
    if len(found) < len(fields):
        keys = [key for key, _ in fields]
        raise ValueError(f"an object has the field {next(key for key in keys if keys.count(key) > 1)!r} twice")
    return found


def _not_finite(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _not_finite(item, f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _not_finite(item, f"{path}[{index}]")
    elif isinstance(value, float) and not math.isfinite(value):
        yield path


def seen(value: Any) -> str:
    """A value as messages show it."""
    return "nothing" if value is None else repr(value)[:80]


def text_at(value: Any, where: str) -> str:
    """The value as a text that is not empty."""
    if not isinstance(value, str) or not value or any("\ud800" <= sign <= "\udfff" for sign in value):
        raise BadInput(where, seen(value), "a text")
    return value


def array_at(value: Any, where: str) -> list[Any]:
    """The value as an array."""
    if not isinstance(value, list):
        raise BadInput(where, seen(value), "an array")
    return value


def number_at(value: Any, where: str, expected: str = "a number, 0 or more", *, above: bool = False) -> float:
    """The value as a finite number of 0 or more, or above 0."""
    number = finite(value)
    if number is None or number < 0 or (above and number == 0):
        raise BadInput(where, seen(value), expected)
    return number


class Unknown:
    """The fields that a format does not know, said once for each kind: `$.jobs[0].colour (and 7 more)`."""

    def __init__(self, name: str, form: str) -> None:
        self._name, self._form = name, form
        self._found: dict[tuple[str, str], list[str]] = {}

    def field(self, kind: str, path: str, field: str) -> None:
        """One is there; `kind` is what its object is."""
        self._found.setdefault((kind, field), []).append(f"{path}.{field}")

    def tell(self, warn: Warn) -> None:
        """Warn of all that were found."""
        for paths in self._found.values():
            more = f" (and {len(paths) - 1} more)" if len(paths) > 1 else ""
            warn(f"{self._name}: {paths[0]}{more} is not part of {self._form} and is ignored")


class Fields:
    """One object of a document. A field that is null counts as not given.

    Methods take a default for what is not given; without one the field must be there.
    """

    def __init__(self, value: Any, name: str, path: str = "$") -> None:
        if not isinstance(value, dict):
            raise BadInput(f"{name}: {path}", seen(value), "an object")
        self.name, self.path = name, path
        self.given: dict[str, Any] = value

    def where(self, field: str) -> str:
        """A field's place for messages."""
        return f"{self.name}: {self.path}.{field}"

    def wrong(self, field: str, expected: str) -> BadInput:
        """The error about a field's value."""
        return BadInput(self.where(field), seen(self.given.get(field)), expected)

    def known(self, fields: tuple[str, ...], unknown: Unknown, kind: str) -> None:
        """Take note of all fields but these."""
        for field in self.given:
            if field not in fields:
                unknown.field(kind, self.path, field)

    def must_be(self, field: str, value: str) -> None:
        """The field is exactly so."""
        if self.given.get(field) != value:
            raise self.wrong(field, repr(value))

    def text(self, field: str, default: T | Given = ...) -> str | T:
        value = self.given.get(field)
        if value is None and not isinstance(default, EllipsisType):
            return default
        return text_at(value, self.where(field))

    def flag(self, field: str, default: bool | Given = ...) -> bool:
        value = self.given.get(field)
        if value is None and not isinstance(default, EllipsisType):
            return default
        if not isinstance(value, bool):
            raise self.wrong(field, "true or false")
        return value

    def whole(self, field: str, default: T | Given = ...) -> int | T:
        value = self.given.get(field)
        if value is None and not isinstance(default, EllipsisType):
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_WHOLE:
            raise self.wrong(field, "a whole number from 1 on")
        return value

    def number(self, field: str, expected: str, default: T | Given = ..., *, above: bool = False) -> float | T:
        """A finite number of 0 or more, or above 0."""
        value = self.given.get(field)
        if value is None and not isinstance(default, EllipsisType):
            return default
        return number_at(value, self.where(field), expected, above=above)

    def array(self, field: str, default: list[Any] | Given = ...) -> list[Any]:
        value = self.given.get(field)
        if value is None and not isinstance(default, EllipsisType):
            return default
        return array_at(value, self.where(field))

    def inside(self, field: str, default: dict[str, Any] | Given = ...) -> Fields:
        """An object in a field."""
        value = self.given.get(field)
        if value is None and not isinstance(default, EllipsisType):
            value = default
        return Fields(value, self.name, f"{self.path}.{field}")

    def each(self, field: str, default: list[Any] | Given = ...) -> Iterator[Fields]:
        """The objects in an array."""
        for index, item in enumerate(self.array(field, default)):
            yield Fields(item, self.name, f"{self.path}.{field}[{index}]")
