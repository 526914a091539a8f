"""What the agent must not forget: its tasks, the facts that are not on the log yet, and how far it has read.

One SQLite file. An order's effect and the position behind it are one transaction; so are a task's new
status and the facts that report it, and a piece of output and the place in its file behind it.

The file says its format. One of an older format is brought to today's in the transaction that opens it; one of a newer
format is refused as it is. One that is damaged, in any bit (each row has a checksum), is set aside: the tasks are known
from their folders and the log (former.py). A write that was cut off at the end is no damage: SQLite drops what was not
committed.

The disk may be full. The journal has room of its own: its write-ahead log is allocated when it is opened, and the
file behind it has free pages. When that is used up as well, writes are kept in memory, in their order, and nothing of
them counts as done outside of this process: facts are published from the file alone, and what an agent forgets that
ends before there is room, the next one finds out anew.
"""

from __future__ import annotations

import logging
import sqlite3
import time
import uuid
import zlib
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
from libs.runtime.disk_room import lacks_room
from torch_agent.room import allocate

log = logging.getLogger(__name__)

FORMAT = 3
"""Of the file. 1 (in the file: 0) had no format; its orders in tasks had no version. 2 had no checksums."""

TABLES = """
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS tasks (key TEXT PRIMARY KEY, task BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS facts (
  number INTEGER PRIMARY KEY AUTOINCREMENT, wire_type TEXT NOT NULL, data BLOB NOT NULL, time_s REAL NOT NULL);
CREATE TABLE IF NOT EXISTS tails (path TEXT PRIMARY KEY, offset INTEGER NOT NULL);
"""
"""As format 2 had them; format 3 adds a column `crc` to each (`_add_checksums`)."""
COLUMNS = {
    "notes": ("name", "value"),
    "tasks": ("key", "task"),
    "facts": ("wire_type", "data", "time_s"),
    "tails": ("path", "offset"),
}
"""{table: what its checksums are of}. A fact's number is not among them: it is given as the row is written."""
WAL_BYTES = 8 << 20
"""Of the write-ahead log, allocated: SQLite writes back after half of that, and goes on at its beginning."""
FREE_PAGES = 256
"""Of the file behind it, a megabyte: what is written back finds its place there."""


class JournalRefused(Exception):
    """A journal that cannot be read; the message says which file, what was found and what was expected."""


class JournalDamaged(JournalRefused):
    """It has been written otherwise by nothing that this code knows."""


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
            JournalRefused: it is of a newer format; it stays as it is.
            JournalDamaged: so does one that is damaged.
            sqlite3.OperationalError: there is no room for it on the disk, among others.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._held: list[Callable[[], object]] = []
        """Writes that there is no room for, the first one first."""
        self._held_notes: dict[str, str] = {}
        self._held_tails: dict[str, int] = {}
        self._published = 0
        found = _format_of(path)
        self._db = sqlite3.connect(path, isolation_level=None)
        try:
            self._open(found)
        except BaseException:
            self._db.close()
            raise

    def _open(self, found: int) -> None:
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        with _transaction(self._db), self._reading():
            for statement in TABLES.split(";"):
                self._db.execute(statement)
            if found == FORMAT and not _has_checksums(self._db):  # it is new
                found = FORMAT - 1
            for older in range(found, FORMAT):
                UPCASTS[older](self._db)
            self._db.execute(f"PRAGMA user_version = {FORMAT}")
        self._check()
        if self._note("format") != str(FORMAT):
            self._set_note("format", str(FORMAT))
        self.id = self._note("journal_id") or self.begin_anew()
        """Makes event ids unique over a node's journals: numbers start anew when a node's disk is replaced."""
        self.is_behind = False
        """Whether the log has facts of it that it does not know, or of another journal of its node after it."""

    def _check(self) -> None:
        """Compare all rows with their checksums.

        Raises:
            JournalDamaged: one differs.
        """
        with self._reading():
            for table, columns in COLUMNS.items():
                for *values, crc in self._db.execute(f"SELECT {', '.join(columns)}, crc FROM {table}"):
                    if _crc(*values) != crc:
                        raise JournalDamaged(f"{self._path}: a row of its {table} is not as it was written")

    def reserve(self) -> bool:
        """Allocate the room that it is to have on the disk, unless it has it.

        Returns:
            Whether the file system promises it.

        Raises:
            OSError: there is not so much room now.
            sqlite3.OperationalError: likewise.
        """
        missing = FREE_PAGES - int(self._db.execute("PRAGMA freelist_count").fetchone()[0])
        if missing > 0:
            [(page_bytes,)] = self._db.execute("PRAGMA page_size").fetchall()
            with _transaction(self._db):
                self._db.execute("CREATE TABLE room (content BLOB)")
                self._db.execute("INSERT INTO room VALUES (zeroblob(?))", (missing * page_bytes,))
                self._db.execute("DROP TABLE room")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        wal = self._path.with_name(f"{self._path.name}-wal")
        if wal.exists() and wal.stat().st_blocks * 512 >= WAL_BYTES:
            return True
        self._set_note("format", str(FORMAT))  # so that there is one
        return allocate(wal, WAL_BYTES)

    @property
    def is_full(self) -> bool:
        """Whether there is no room: what is recorded is kept in memory."""
        return bool(self._held)

    def settle(self) -> bool:
        """Write what is kept in memory, as far as there is room. Returns whether nothing is left of it."""
        while self._held:
            try:
                with _transaction(self._db):
                    self._held[0]()
            except sqlite3.DatabaseError as error:
                if not lacks_room(error, self._path.parent):
                    raise JournalDamaged(f"{self._path}: it cannot be written: {error}") from error
                return False
            del self._held[0]
        self._held_notes.clear()
        self._held_tails.clear()
        return True

    def begin_anew(self) -> str:
        """Give the journal a new id: its numbers were given to other facts before. Returns the id."""
        self.id = self._set_note("journal_id", uuid.uuid4().hex)
        return self.id

    @property
    def former_id(self) -> str:
        """Of the journal that it was put in the place of; empty: of none, or not known."""
        return self._note("former_id") or ""

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
        """Offset behind the last order applied; None when the journal is new and has no place among the orders yet.

        As the file has it: what is kept in memory alone may have to be applied again.
        """
        row = self._db.execute("SELECT value FROM notes WHERE name = 'next_order'").fetchone()
        return int(row[0]) if row is not None else None

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
        """Write all of it, or nothing; later, when there is room for it."""
        task_rows = [(task.key, _encoded(task)) for task in tasks]
        fact_rows = [(fact.wire_type, wire.encode_data(fact), time_s) for fact in facts]
        tail_rows = list((tails or {}).items())

        def write() -> None:
            for table, rows in (("tasks", task_rows), ("facts", fact_rows), ("tails", tail_rows)):
                self._put(table, rows)
            if next_order is not None:
                self._put("notes", [("next_order", str(next_order))])

        if not self._write(write):
            self._held_tails.update(tail_rows)

    def rebuild(
        self,
        tasks: Sequence[Task],
        lost: Sequence[Event],
        tails: dict[str, int],
        *,
        next_order: int,
        incarnation: int,
        former_id: str,
        time_s: float,
    ) -> None:
        """Have these tasks instead of those that it has, and this place among the orders.

        Args:
            tasks: all of the node.
            lost: facts about others.
            tails: {file of output: how far it is read}, where that is known anew.
            next_order: offset behind the last order that counts.
            incarnation: the last one that was used at least.
            former_id: of the journal that wrote to the log last.
            time_s: of the facts, seconds since the epoch.
        """
        incarnation = max(incarnation, int(self._note("incarnation") or 0))
        with _transaction(self._db):
            self._db.execute("DELETE FROM tasks")
            self._put("tasks", [(task.key, _encoded(task)) for task in tasks])
            self._put("facts", [(fact.wire_type, wire.encode_data(fact), time_s) for fact in lost])
            self._put("tails", list(tails.items()))
            notes = {"next_order": next_order, "incarnation": incarnation, "former_id": former_id}
            self._put("notes", [(name, str(value)) for name, value in notes.items()])

    def unpublished(self, limit: int) -> list[Fact]:
        """The oldest facts that are not known to be on the log.

        Raises:
            JournalRefused: one of them cannot be read.
        """
        with self._reading():
            rows = self._db.execute(
                "SELECT number, time_s, wire_type, data FROM facts WHERE number > ? ORDER BY number LIMIT ?",
                (self._published, limit),
            ).fetchall()
            return [Fact(number, time_s, wire.decode_data(kind, data)) for number, time_s, kind, data in rows]

    def published(self, number: int) -> None:
        """Everything up to this number is on the log."""
        self._published = max(self._published, number)
        self._write(lambda: self._db.execute("DELETE FROM facts WHERE number <= ?", (number,)))

    @property
    def backlog(self) -> int:
        """Facts that wait to be published."""
        found = self._db.execute("SELECT count(*) FROM facts WHERE number > ?", (self._published,))
        return int(found.fetchone()[0])

    def tail(self, path: str) -> int:
        """How far a file of output has been read."""
        if path in self._held_tails:
            return self._held_tails[path]
        row = self._db.execute("SELECT offset FROM tails WHERE path = ?", (path,)).fetchone()
        return row[0] if row else 0

    def forget(self, key: str, folder: str) -> None:
        """Drop an ended task, and the places in the files of its folder."""

        def write() -> None:
            self._db.execute("DELETE FROM tasks WHERE key = ?", (key,))
            self._db.execute("DELETE FROM tails WHERE substr(path, 1, ?) = ?", (len(folder) + 1, f"{folder}/"))

        self._write(write)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Name the journal in what cannot be read."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if lacks_room(error, self._path.parent):
                raise
            raise JournalDamaged(f"{self._path}: a record cannot be read: {error}") from error
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
            raise JournalDamaged(f"{self._path}: a record cannot be read: {error!r}") from error
        except wire.Undecodable as error:
            raise JournalRefused(f"{self._path}: a record cannot be read: {error}") from error

    def _write(self, change: Callable[[], object]) -> bool:
        """Write in a transaction, behind what is kept in memory. Returns whether that was possible now."""
        if not self._held:
            try:
                with _transaction(self._db):
                    change()
                return True
            except sqlite3.DatabaseError as error:
                if not lacks_room(error, self._path.parent):
                    raise JournalDamaged(f"{self._path}: it cannot be written: {error}") from error
                log.error("%s: there is no room; what is recorded is kept in memory: %s", self._path, error)
        self._held.append(change)
        return False

    def _put(self, table: str, rows: Sequence[tuple[object, ...]]) -> None:
        """Write rows, in place of those with the same key."""
        columns = COLUMNS[table]
        key, value = columns[0], columns[-1]
        places = ", ".join("?" * (len(columns) + 1))
        statement = f"INSERT INTO {table} ({', '.join(columns)}, crc) VALUES ({places})"
        if table != "facts":
            statement += f" ON CONFLICT ({key}) DO UPDATE SET {value} = excluded.{value}, crc = excluded.crc"
        self._db.executemany(statement, [(*row, _crc(*row)) for row in rows])

    def _note(self, name: str) -> str | None:
        if name in self._held_notes:
            return self._held_notes[name]
        row = self._db.execute("SELECT value FROM notes WHERE name = ?", (name,)).fetchone()
        return row[0] if row else None

    def _set_note(self, name: str, value: str) -> str:
        if not self._write(lambda: self._put("notes", [(name, value)])):
            self._held_notes[name] = value
        return value


def reserve(journal: Journal, folder: Path) -> None:
    """Allocate the journal's room; where that is not possible, a sentence says so, and it goes on without."""
    try:
        if not journal.reserve():
            log.warning("%s: this file system cannot keep room free; zeros are written for it", folder)
    except (OSError, sqlite3.OperationalError) as error:
        if not lacks_room(error, folder):
            raise
        log.error("%s: there is no room to be kept free for the journal: %s", folder, error)


def opened(path: Path) -> tuple[Journal, str]:
    """The journal; and, where the file that was there is damaged and has been set aside, a sentence that says so.

    Raises:
        JournalRefused: it is of a newer format.
        sqlite3.OperationalError: there is no room for it on the disk, among others.
    """
    try:
        return Journal(path), ""
    except JournalDamaged as error:
        aside = path.with_name(f"{path.stem}.damaged-{time.time_ns()}{path.suffix}")
        for suffix in ("-shm", "-wal", ""):  # the file itself last: until then it is found damaged again
            found = path.with_name(f"{path.name}{suffix}")
            if suffix == "-shm":
                found.unlink(missing_ok=True)
            elif found.exists():
                found.rename(aside.with_name(f"{aside.name}{suffix}"))
        return Journal(
            path
        ), f"{error}; it is kept as {aside.name}, and a new one is made from the folders of the tasks"


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _format_of(path: Path) -> int:
    """The format of a journal; today's when there is none yet. Reads only.

    Raises:
        JournalRefused: it is of a newer format.
        JournalDamaged: it is damaged.
    """
    if not path.exists() or (path.stat().st_size == 0 and not path.with_name(f"{path.name}-wal").exists()):
        return FORMAT
    number, noted, tables = 0, "", list[str]()
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as db:
            [(number,)] = db.execute("PRAGMA user_version").fetchall()
            complaints = [row[0] for row in db.execute("PRAGMA integrity_check(3)") if row[0] != "ok"]
            tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            if "notes" in tables and not complaints:
                noted = "".join(row[0] for row in db.execute("SELECT value FROM notes WHERE name = 'format'"))
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if lacks_room(error, path.parent):
            raise
        complaints = [str(error)]
    if not complaints and tables and noted and noted != str(number):
        complaints = [f"its head says format {number}, its notes {noted}"]
    if not complaints and tables and not {*COLUMNS, "sqlite_sequence"} <= {*tables}:
        complaints = [f"it has the tables {', '.join(sorted(tables))}; expected {', '.join(COLUMNS)}"]
    if number > FORMAT and noted != str(FORMAT):
        raise JournalRefused(
            f"{path}: a journal of format {number}; this agent knows the formats 1 to {FORMAT}: "
            f"start the version that wrote it, or a later one"
        )
    if complaints:
        raise JournalDamaged(f"{path}: expected a whole SQLite file: {'; '.join(complaints)}{_cut(path)}")
    return max(number, 1) if tables else FORMAT


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


def _add_checksums(db: sqlite3.Connection) -> None:
    """From format 2 to 3: each row has a checksum, and the notes have the format as well.

    Raises:
        msgspec.DecodeError: a task or a fact is damaged, which format 2 does not tell otherwise.
    """
    for content, _ in db.execute("SELECT task, 0 FROM tasks UNION ALL SELECT data, 0 FROM facts"):
        msgspec.json.decode(content)
    for table, columns in COLUMNS.items():
        db.execute(f"ALTER TABLE {table} ADD COLUMN crc INTEGER NOT NULL DEFAULT 0")
        rows = db.execute(f"SELECT rowid, {', '.join(columns)} FROM {table}").fetchall()
        db.executemany(f"UPDATE {table} SET crc = ? WHERE rowid = ?", [(_crc(*row[1:]), row[0]) for row in rows])


def _has_checksums(db: sqlite3.Connection) -> bool:
    return "crc" in [row[1] for row in db.execute("PRAGMA table_info(notes)")]


def _crc(*values: object) -> int:
    """Of a row; tells any change of a single bit."""
    return zlib.crc32(msgspec.msgpack.encode(values))


UPCASTS: dict[int, Callable[[sqlite3.Connection], None]] = {1: _name_order_types, 2: _add_checksums}
"""{format: brings a journal of it to the next one}."""
