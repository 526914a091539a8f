"""The file: its tables, its version, and how it is opened."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from libs.bus.port import BusError, BusUnavailable

VERSION = 1

TABLES = """
CREATE TABLE IF NOT EXISTS partitions (
  topic TEXT NOT NULL, part INTEGER NOT NULL,
  first_offset INTEGER NOT NULL DEFAULT 0,  -- earlier ones are no longer kept
  next_offset INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (topic, part)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS log (
  topic TEXT NOT NULL, part INTEGER NOT NULL, offset INTEGER NOT NULL,
  key TEXT NOT NULL, headers BLOB NOT NULL, value BLOB NOT NULL, appended_at_s REAL NOT NULL,
  PRIMARY KEY (topic, part, offset)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sessions (name TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS positions (
  session TEXT NOT NULL, topic TEXT NOT NULL, part INTEGER NOT NULL,
  next_offset INTEGER NOT NULL, metadata TEXT NOT NULL,
  PRIMARY KEY (session, topic, part)
) WITHOUT ROWID;
"""

BUSY_TIMEOUT_S = 30.0
"""How long a writer waits for its turn. Turns take milliseconds; a longer wait means that somebody is stuck."""


def open_file(path: Path, *, read_only: bool, synchronous: str) -> sqlite3.Connection:
    """A connection in autocommit mode; the tables are made when the file is new.

    Args:
        synchronous: `FULL` syncs every commit to the disk, `NORMAL` survives the death of processes only.

    Raises:
        BusUnavailable: the file cannot be opened or written.
        BusError: it is no log of this product, or one of another version.
    """
    try:
        if not read_only:
            path.parent.mkdir(parents=True, exist_ok=True)
        mode = "ro" if read_only else "rwc"
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
        )
        _check_version(connection, path, read_only=read_only)
        connection.execute(f"PRAGMA synchronous={synchronous}")
    except sqlite3.OperationalError as error:
        raise BusUnavailable(f"cannot open the log {path}: {error}") from error
    except (sqlite3.DatabaseError, OSError) as error:
        raise BusError(f"{path} cannot be used as a log: {error}") from error
    return connection


def _check_version(connection: sqlite3.Connection, path: Path, *, read_only: bool) -> None:
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if found == VERSION:
        return
    empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if found != 0 or not empty or read_only:
        raise BusError(f"{path} is not a log of version {VERSION} (found {found}): another program's, or a newer one's")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("BEGIN IMMEDIATE")
    for statement in TABLES.split(";"):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version={VERSION}")
    connection.execute("COMMIT")
