"""What the agent must not forget: its tasks, the facts that are not on the log yet, and how far it has read.

One SQLite file. An order's effect and the position behind it are one transaction; so are a task's new
status and the facts that report it, and a piece of output and the place in its file behind it.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from libs.contracts import wire
from libs.contracts.base import Event
from torch_agent.core.task import Task

TABLES = """
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS tasks (key TEXT PRIMARY KEY, task BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS facts (
  number INTEGER PRIMARY KEY AUTOINCREMENT, wire_type TEXT NOT NULL, data BLOB NOT NULL, time_s REAL NOT NULL);
CREATE TABLE IF NOT EXISTS tails (path TEXT PRIMARY KEY, offset INTEGER NOT NULL);
"""


class Fact(msgspec.Struct, frozen=True):
    """A fact with its running number."""

    number: int
    time_s: float
    event: Event


class Journal:
    """Not thread-safe: used from the agent's event loop alone; its transactions take well under a millisecond."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.executescript(TABLES)
        self.id = self._note("journal_id") or self._set_note("journal_id", uuid.uuid4().hex)
        """Makes event ids unique over a node's journals: numbers start anew when a node's disk is replaced."""

    def begin_incarnation(self) -> int:
        """Count one more start of the agent."""
        return int(self._set_note("incarnation", str(int(self._note("incarnation") or 0) + 1)))

    @property
    def state_port(self) -> int:
        """Where states were given out last; 0 before the first time."""
        return int(self._note("state_port") or 0)

    @state_port.setter
    def state_port(self, port: int) -> None:
        self._set_note("state_port", str(port))

    @property
    def next_order(self) -> int:
        """Offset behind the last order applied; 0 before the first."""
        return int(self._note("next_order") or 0)

    def tasks(self) -> dict[str, Task]:
        """All tasks that have not been forgotten."""
        rows = self._db.execute("SELECT key, task FROM tasks ORDER BY rowid").fetchall()
        return {key: msgspec.json.decode(task, type=Task) for key, task in rows}

    def record(
        self,
        tasks: Sequence[Task] = (),
        facts: Sequence[Event] = (),
        *,
        time_s: float = 0.0,
        next_order: int | None = None,
        tails: dict[str, int] | None = None,
    ) -> None:
        """Write all of it, or nothing."""
        with _transaction(self._db):
            for task in tasks:
                self._db.execute(
                    "INSERT INTO tasks VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET task = excluded.task",
                    (task.key, msgspec.json.encode(task)),
                )
            self._db.executemany(
                "INSERT INTO facts (wire_type, data, time_s) VALUES (?, ?, ?)",
                [(fact.wire_type, wire.encode_data(fact), time_s) for fact in facts],
            )
            self._db.executemany(
                "INSERT INTO tails VALUES (?, ?) ON CONFLICT (path) DO UPDATE SET offset = excluded.offset",
                list((tails or {}).items()),
            )
            if next_order is not None:
                self._set_note("next_order", str(next_order))

    def unpublished(self, limit: int) -> list[Fact]:
        """The oldest facts that are not known to be on the log."""
        rows = self._db.execute(
            "SELECT number, time_s, wire_type, data FROM facts ORDER BY number LIMIT ?", (limit,)
        ).fetchall()
        return [Fact(number, time_s, wire.decode_data(kind, data)) for number, time_s, kind, data in rows]

    def published(self, number: int) -> None:
        """Everything up to this number is on the log."""
        self._db.execute("DELETE FROM facts WHERE number <= ?", (number,))

    @property
    def backlog(self) -> int:
        """Facts that wait to be published."""
        return int(self._db.execute("SELECT count(*) FROM facts").fetchone()[0])

    def tail(self, path: str) -> int:
        """How far a file of output has been read."""
        row = self._db.execute("SELECT offset FROM tails WHERE path = ?", (path,)).fetchone()
        return row[0] if row else 0

    def forget(self, key: str, paths: Sequence[str]) -> None:
        """Drop an ended task and its files' places."""
        with _transaction(self._db):
            self._db.execute("DELETE FROM tasks WHERE key = ?", (key,))
            self._db.executemany("DELETE FROM tails WHERE path = ?", [(path,) for path in paths])

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _note(self, name: str) -> str | None:
        row = self._db.execute("SELECT value FROM notes WHERE name = ?", (name,)).fetchone()
        return row[0] if row else None

    def _set_note(self, name: str, value: str) -> str:
        self._db.execute(
            "INSERT INTO notes VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", (name, value)
        )
        return value


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")
