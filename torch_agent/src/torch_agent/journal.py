"""What the agent must not forget: its tasks, the facts that are not on the log yet, and how far it has read.

One SQLite file. An order's effect and the position behind it are one transaction; so are a task's new
status and the facts that report it, and a piece of output and the place in its file behind it.

The file says its format. One of an older format is brought to today's in the transaction that opens it; one of a newer
format, or one that is damaged, is refused as it is. A write that was cut off at the end is no damage: SQLite drops what
was not committed.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from libs.contracts import upcast, wire
from libs.contracts.base import Event
from libs.contracts.placement import LaunchTask, RestoreTask
from libs.node.task import Task

FORMAT = 2
"""Of the file. 1 (in the file: 0) had no format; its orders in tasks had no version."""

TABLES = """
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS tasks (key TEXT PRIMARY KEY, task BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS facts (
  number INTEGER PRIMARY KEY AUTOINCREMENT, wire_type TEXT NOT NULL, data BLOB NOT NULL, time_s REAL NOT NULL);
CREATE TABLE IF NOT EXISTS tails (path TEXT PRIMARY KEY, offset INTEGER NOT NULL);
"""


class JournalRefused(Exception):
    """A journal that cannot be read; the message says which file, what was found and what was expected."""


class Fact(msgspec.Struct, frozen=True):
    """A fact with its running number."""

    number: int
    time_s: float
    event: Event


class Journal:
    """Not thread-safe: used from the agent's event loop alone; its transactions take well under a millisecond."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it.

        Raises:
            JournalRefused: it is of a newer format, or damaged; it stays as it is.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        found = _format_of(path)
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        with _transaction(self._db), self._reading():
            for statement in TABLES.split(";"):
                self._db.execute(statement)
            for older in range(found, FORMAT):
                UPCASTS[older](self._db)
            self._db.execute(f"PRAGMA user_version = {FORMAT}")
            self.id = self._note("journal_id") or self.begin_anew()
            """Makes event ids unique over a node's journals: numbers start anew when a node's disk is replaced."""

    def begin_anew(self) -> str:
        """Give the journal a new id: its numbers were given to other facts before. Returns the id."""
        self.id = self._set_note("journal_id", uuid.uuid4().hex)
        return self.id

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
    def machine_start(self) -> str:
        """In which life of the machine (`processes.machine_start`) the tasks were looked at last; empty: not noted."""
        return self._note("machine_start") or ""

    @machine_start.setter
    def machine_start(self, start: str) -> None:
        self._set_note("machine_start", start)

    @property
    def clock_offset_s(self) -> float | None:
        """Of the clock (`clock.offset_s`) by which its times are, in that life of the machine; None: not noted."""
        note = self._note("clock_offset_s")
        return float(note) if note is not None else None

    @clock_offset_s.setter
    def clock_offset_s(self, offset_s: float) -> None:
        self._set_note("clock_offset_s", repr(offset_s))

    @property
    def next_order(self) -> int | None:
        """Offset behind the last order applied; None when the journal is new and has no place among the orders yet."""
        note = self._note("next_order")
        return int(note) if note is not None else None

    @property
    def last_number(self) -> int:
        """Of the facts, published ones included; 0 before the first."""
        row = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'facts'").fetchone()
        return int(row[0]) if row else 0

    def tasks(self) -> dict[str, Task]:
        """All tasks that have not been forgotten.

        Raises:
            JournalRefused: one of them cannot be read.
        """
        with self._reading():
            rows = self._db.execute("SELECT key, task FROM tasks ORDER BY rowid").fetchall()
            return {key: _decoded(key, task) for key, task in rows}

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
                    (task.key, _encoded(task)),
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
        """The oldest facts that are not known to be on the log.

        Raises:
            JournalRefused: one of them cannot be read.
        """
        with self._reading():
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

    def forget(self, key: str, folder: str) -> None:
        """Drop an ended task, and the places in the files of its folder."""
        with _transaction(self._db):
            self._db.execute("DELETE FROM tasks WHERE key = ?", (key,))
            self._db.execute("DELETE FROM tails WHERE substr(path, 1, ?) = ?", (len(folder) + 1, f"{folder}/"))

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Name the journal in what cannot be read."""
        try:
            yield
        except (sqlite3.DatabaseError, msgspec.DecodeError, wire.Undecodable) as error:
            raise JournalRefused(f"{self._path}: a record cannot be read: {error}") from error

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


def _format_of(path: Path) -> int:
    """The format of a journal; today's when there is none yet. Reads only.

    Raises:
        JournalRefused: it is of a newer format, or damaged.
    """
    if not path.exists() or (path.stat().st_size == 0 and not path.with_name(f"{path.name}-wal").exists()):
        return FORMAT
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as db:
            [(number,)] = db.execute("PRAGMA user_version").fetchall()
            if number > FORMAT:
                raise JournalRefused(
                    f"{path}: a journal of format {number}; this agent knows the formats 1 to {FORMAT}: "
                    f"start the version that wrote it, or a later one"
                )
            has_tables = bool(db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
            complaints = [row[0] for row in db.execute("PRAGMA quick_check(3)") if row[0] != "ok"]
    except sqlite3.DatabaseError as error:
        complaints = [str(error)]
    if complaints:
        raise JournalRefused(f"{path}: expected a whole SQLite file: {'; '.join(complaints)}{_cut(path)}")
    return max(number, 1) if has_tables else FORMAT


def _cut(path: Path) -> str:
    """Where the file ends too early, as its head says; empty when it does not say that."""
    with path.open("rb") as file:
        head = file.read(100)
    if len(head) < 100 or not head.startswith(b"SQLite format 3\0"):
        return f"; the head of {len(head)} bytes is not one of SQLite"
    page_bytes = int.from_bytes(head[16:18], "big")
    whole, size = page_bytes * int.from_bytes(head[28:32], "big"), path.stat().st_size
    return f"; it ends at byte {size}, its head says {whole}" if size < whole else ""


def _encoded(task: Task) -> bytes:
    """With the versions of its orders."""
    body: dict[str, Any] = msgspec.to_builtins(task)
    for name, order in (("order", task.order), ("restore", task.restore)):
        body[name] = None if order is None else {"type": order.wire_type, "data": body[name]}
    return msgspec.json.encode(body)


def _decoded(key: str, stored: bytes) -> Task:
    """Its orders as they are today.

    Raises:
        wire.Undecodable: it is no task, or has an order of an unknown version.
    """
    try:
        body = msgspec.json.decode(stored, type=dict[str, Any])
        for name, expected in (("order", LaunchTask), ("restore", RestoreTask)):
            if body[name] is not None:
                kind, data = upcast.to_current(body[name]["type"], msgspec.json.encode(body[name]["data"]))
                if kind != expected.wire_type:
                    raise wire.Undecodable(f"task {key}: an order of type {kind}; expected {expected.wire_type}")
                body[name] = msgspec.Raw(data)
        return msgspec.json.decode(msgspec.json.encode(body), type=Task)
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise wire.Undecodable(f"task {key}: {error!r}") from error


def _name_order_types(db: sqlite3.Connection) -> None:
    """From format 1 to 2: orders in tasks say their type and version; a journal that is used has a place among them."""
    db.execute(
        "INSERT INTO notes SELECT 'next_order', '0' WHERE EXISTS (SELECT 1 FROM notes WHERE name = 'incarnation') "
        "ON CONFLICT (name) DO NOTHING"
    )
    for key, stored in db.execute("SELECT key, task FROM tasks").fetchall():
        body = msgspec.json.decode(stored)
        gpus = body["order"]["gpu_indices"]
        body = {"gpu_indices": gpus, "wanted_gpus": gpus, **body}  # the first agents left them in the order
        for name, kind in (("order", "task.launch.v1"), ("restore", "task.restore.v1")):
            order = body.get(name)
            body[name] = None if order is None else {"type": kind, "data": order}
        db.execute("UPDATE tasks SET task = ? WHERE key = ?", (msgspec.json.encode(body), key))


UPCASTS: dict[int, Callable[[sqlite3.Connection], None]] = {1: _name_order_types}
"""{format: brings a journal of it to the next one}."""
