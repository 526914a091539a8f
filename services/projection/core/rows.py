"""The rows that a fold works on: loaded when asked for, kept once, remembered when changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, cast

from libs.contracts.read_models import ROW_TYPES, Row

R = TypeVar("R", bound=Row)

Key = tuple[Any, ...]
Load = Callable[[type[Row], list[Key]], Iterable[Row]]
"""Reads the rows of one table that have these primary keys; absent ones are left out."""


def nothing(row_type: type[Row], keys: list[Key]) -> Iterable[Row]:
    """The loader of rows that live in memory alone."""
    return ()


def key_of(row: Row) -> Key:
    """The row's primary key."""
    return tuple(getattr(row, column) for column in row.key)


class Rows:
    """An identity map over the read models' tables.

    With the default loader it is a whole read model in memory; with a loader over SQL it is what its one writer knows
    of the tables: fold a batch, store `changed()`, say that it is `stored`. If storing fails, start anew.
    """

    def __init__(self, load: Load = nothing) -> None:
        self._load = load
        self._known: dict[type[Row], dict[Key, Row | None]] = {row_type: {} for row_type in ROW_TYPES}
        self._changed: dict[type[Row], dict[Key, Row]] = {row_type: {} for row_type in ROW_TYPES}

    def fetch(self, row_type: type[R], keys: Iterable[Key]) -> list[R]:
        """The rows with these keys, in the keys' order; absent ones are left out. One load for all."""
        wanted = list(dict.fromkeys(keys))
        known = self._known[row_type]
        missing = [key for key in wanted if key not in known]
        if missing:
            known.update(dict.fromkeys(missing))
            known.update((key_of(row), row) for row in self._load(row_type, missing))
        return [cast(R, row) for key in wanted if (row := known[key]) is not None]

    def get(self, row_type: type[R], *key: Any) -> R | None:
        """One row, or None when there is none."""
        found = self.fetch(row_type, [key])
        return found[0] if found else None

    def put(self, row: Row) -> None:
        """A new row, or one that was got before and has been changed."""
        key = key_of(row)
        self._known[type(row)][key] = row
        self._changed[type(row)][key] = row

    def changed(self) -> Iterator[tuple[type[Row], list[Row]]]:
        """What was put since the start, per table."""
        for row_type, rows in self._changed.items():
            if rows:
                yield row_type, list(rows.values())

    def stored(self, most: int) -> None:
        """What was put is in the tables. Where more rows than `most` are known, all of them are forgotten."""
        for changed in self._changed.values():
            changed.clear()
        if sum(map(len, self._known.values())) > most:
            for known in self._known.values():
                known.clear()

    def all(self, row_type: type[R]) -> list[R]:
        """Every row of a table that is known here; with a loader that is not the whole table."""
        return [cast(R, row) for row in self._known[row_type].values() if row is not None]
