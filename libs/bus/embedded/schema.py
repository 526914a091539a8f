"""The file: its tables, its version, and how a connection to it is opened."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

from libs.bus.embedded.failures import in_our_words, primary_code, translated
from libs.bus.port import BusError, BusUnavailable

APPLICATION_ID = 0x53414E4A
"""`SANJ` in the file's header: this is a log of ours."""
VERSION = 1
"""The layout that a new log gets."""
ARCHIVED_VERSION = 2
"""The layout of a log from which older records were removed: with the table `archives`, and control may begin late.

A Sanjaya that knows nothing of archives would take what is left for the whole, so the number keeps it out.
"""

OFFSET_BITS = 40
"""A message's row id is its partition's id and its offset, so that a partition's messages lie together."""
OFFSET_MASK = (1 << OFFSET_BITS) - 1

TABLES = (
    """CREATE TABLE partitions (
         id INTEGER PRIMARY KEY,
         cell TEXT NOT NULL, topic TEXT NOT NULL, number INTEGER NOT NULL,
         begin_offset INTEGER NOT NULL DEFAULT 0,  -- of the oldest message that is kept
         next_offset INTEGER NOT NULL DEFAULT 0,
         UNIQUE (cell, topic, number))""",
    # headers: a MessagePack array of [name, bytes] pairs
    """CREATE TABLE messages (
         id INTEGER PRIMARY KEY,
         key TEXT NOT NULL, headers BLOB NOT NULL, value BLOB NOT NULL, appended_at_s REAL NOT NULL)""",
    """CREATE TABLE sessions (
         id INTEGER PRIMARY KEY,
         cell TEXT NOT NULL, name TEXT NOT NULL, epoch INTEGER NOT NULL,
         UNIQUE (cell, name))""",
    # partition_id 0: what is known of a holder in another process (lent.py)
    """CREATE TABLE positions (
         session_id INTEGER NOT NULL, partition_id INTEGER NOT NULL,
         next_offset INTEGER NOT NULL, metadata TEXT NOT NULL,
         PRIMARY KEY (session_id, partition_id)) WITHOUT ROWID""",
    # for people with the sqlite3 shell
    f"""CREATE VIEW log AS
         SELECT p.cell || '.' || p.topic AS topic, p.number AS partition, m.id & {OFFSET_MASK} AS offset,
                m.key AS key, CAST(m.value AS TEXT) AS value, datetime(m.appended_at_s, 'unixepoch') AS appended_at
         FROM messages m JOIN partitions p ON p.id = m.id >> {OFFSET_BITS}""",
)

ARCHIVES = """CREATE TABLE IF NOT EXISTS archives (
     cell TEXT PRIMARY KEY,
     log_id TEXT NOT NULL, directory TEXT NOT NULL, next_offset INTEGER NOT NULL) WITHOUT ROWID"""
"""What is known of each cell's records that were removed; made by the first removal."""

OPENING_S = 30.0
"""How long opening waits for other processes that open the same file."""
READER_WAIT_MS = 10_000
"""Readers wait only while the log is being recovered after a crash."""
WAL_BYTES_KEPT = 64 * 1024 * 1024
WAL_PAGES_AT_MOST = 16_000
"""A commit checkpoints by itself only when the keeper does not come round: from 64 MiB of write-ahead log on."""


def open_for_writing(path: Path) -> sqlite3.Connection:
    """A connection that may write, in autocommit mode, without any waiting of its own; makes the file if needed.

    Raises:
        BusUnavailable: the file is held by others.
        BusError: it cannot be opened or written, is no log, or is one of another version.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BusError(f"log {path} cannot be made: {error}") from error
    if path.exists() and not os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise BusError(f"log {path} cannot be written: no permission")
    with in_our_words(path):
        connection = _connect(path, "rwc")
        try:
            _make_tables(connection, path)
            connection.execute(f"PRAGMA wal_autocheckpoint={WAL_PAGES_AT_MOST}")
            connection.execute(f"PRAGMA journal_size_limit={WAL_BYTES_KEPT}")
            connection.execute("PRAGMA synchronous=FULL")
        except BaseException:
            connection.close()
            raise
    return connection


def open_for_reading(path: Path) -> sqlite3.Connection:
    """A connection that only reads.

    A file in a place where nothing may be written can be read as well, provided that its last writer has
    closed it in order.

    Raises:
        BusUnavailable: the file is held by others.
        BusError: there is no such file, it is no log, or one of another version.
    """
    if not path.exists():
        raise BusError(f"there is no log at {path}")
    try:
        return _open_checked(path, "ro")
    except sqlite3.Error as error:
        if primary_code(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY) or _has_tail(path):
            raise translated(error, path) from error
    with in_our_words(path):
        return _open_checked(path, "ro&immutable=1")


def _open_checked(path: Path, mode: str) -> sqlite3.Connection:
    connection = _connect(path, mode)
    try:
        connection.execute(f"PRAGMA busy_timeout={READER_WAIT_MS}")
        if not _is_log(connection, path):
            raise BusError(f"{path} is empty: no log has been made there yet")
    except BaseException:
        connection.close()
        raise
    return connection


def _has_tail(path: Path) -> bool:
    """Whether a write-ahead log lies beside the file, which holds newer messages than the file."""
    wal = path.with_name(path.name + "-wal")
    return wal.exists() and wal.stat().st_size > 0


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.as_uri()}?mode={mode}", uri=True, timeout=0, isolation_level=None, check_same_thread=False
    )


def _make_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Make a log of a new file, once, however many processes open it at the same time."""
    deadline = time.monotonic() + OPENING_S
    while True:
        try:
            if _is_log(connection, path):
                return
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("BEGIN IMMEDIATE")
            try:
                if not _is_log(connection, path):
                    for statement in TABLES:
                        connection.execute(statement)
                    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
                    connection.execute(f"PRAGMA user_version={VERSION}")
                connection.execute("COMMIT")
                return
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except sqlite3.OperationalError as error:
            # the switch to WAL does not wait for others, whatever timeout is set
            if primary_code(error) != sqlite3.SQLITE_BUSY:
                raise
            if time.monotonic() > deadline:
                raise BusUnavailable(f"log {path} is held by another process for {OPENING_S:g} s") from error
        time.sleep(0.005)


def _is_log(connection: sqlite3.Connection, path: Path) -> bool:
    """True for a log that this version reads, False for an empty file.

    Raises:
        BusError: it is something else.
    """
    # one statement, so that a file that another process is making now is seen before or after, and not in between
    application, version, tables = connection.execute(
        "SELECT (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version),"
        " (SELECT count(*) FROM sqlite_master)"
    ).fetchone()
    if application == APPLICATION_ID:
        if version not in (VERSION, ARCHIVED_VERSION):
            known = f"layouts {VERSION} and {ARCHIVED_VERSION}"
            raise BusError(f"log {path} has layout {version}; this version of Sanjaya reads {known}")
        return True
    if application or version or tables:
        raise BusError(f"{path} is an SQLite database of another program, not a log")
    return False
