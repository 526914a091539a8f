"""SQLite's errors in the port's words: what happened, to which file, and whether waiting can help."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from libs.bus.port import BusError, BusUnavailable, LogFull

MAY_PASS = {
    sqlite3.SQLITE_BUSY: "is held by another process",
    sqlite3.SQLITE_LOCKED: "is held by another connection",
    sqlite3.SQLITE_IOERR: "cannot be read or written: the disk reports an error",
    sqlite3.SQLITE_NOMEM: "cannot be used: out of memory",
    sqlite3.SQLITE_PROTOCOL: "is held by too many processes at once",
}
"""{primary code: words}: trying again later may help."""

FOR_GOOD = {
    sqlite3.SQLITE_READONLY: "cannot be written: no permission, or a read-only disk",
    sqlite3.SQLITE_PERM: "cannot be used: no permission",
    sqlite3.SQLITE_AUTH: "cannot be used: no permission",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: no such directory, or no permission",
    sqlite3.SQLITE_NOTADB: "is no SQLite database",
    sqlite3.SQLITE_CORRUPT: "is damaged: restore it from a copy",
}
"""{primary code: words}, of errors that an operator has to remedy."""


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's result code without its extension, 0 when the error comes from the Python module itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def translated(error: sqlite3.Error, path: Path) -> BusError:
    """The error to raise instead."""
    code = primary_code(error)
    if code == sqlite3.SQLITE_FULL:
        return LogFull(f"log {path} cannot grow: the disk is full ({error})")
    if code in MAY_PASS:
        return BusUnavailable(f"log {path} {MAY_PASS[code]} ({error})")
    return BusError(f"log {path} {FOR_GOOD.get(code, 'cannot be used')} ({error})")


@contextmanager
def in_our_words(path: Path) -> Iterator[None]:
    """Raise SQLite's errors as the port's.

    Raises:
        BusUnavailable: waiting may help; `LogFull` where the disk is full.
        BusError: waiting will not.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise translated(error, path) from error
