"""The agent's journal: of older and newer formats, cut off, damaged."""

from __future__ import annotations

import random
import shutil
import sqlite3
import zlib
from collections import Counter
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from torch_agent.journal import FORMAT, Fact, Journal, JournalDamaged, JournalRefused, opened

from libs.contracts.agent import GpuRecovered
from libs.contracts.placement import RestoreTask, StateSource
from libs.node.task import Task
from libs.testing.disks import fill
from tests.unit.node.test_task import LAUNCH

RESTORE = RestoreTask(
    node_id="n1",
    job_id="a",
    attempt=2,
    from_attempt=1,
    sources=[StateSource(node_id="n2", address="10.0.0.2", port=9, first_rank=0)],
)


def tasks(count: int) -> list[Task]:
    orders = [msgspec.structs.replace(LAUNCH, job_id=f"job-{number}") for number in range(count)]
    return [Task(order=order, restore=RESTORE if number % 2 else None) for number, order in enumerate(orders)]


def change(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path)
    with db:
        for statement in statements:
            db.execute(statement)
    db.close()


def crc(*values: object) -> int:
    return zlib.crc32(msgspec.msgpack.encode(values))


def right(path: Path, table: str, *columns: str) -> None:
    """Give the only row of a table the checksum of its content."""
    db = sqlite3.connect(path)
    [row] = db.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()
    db.close()
    change(path, f"UPDATE {table} SET crc = {crc(*row)}")


def test_what_was_recorded_is_there_again(tmp_path: Path):
    path = tmp_path / "journal.db"
    journal = Journal(path)
    assert journal.next_order is None and journal.last_number == 0
    journal.record(tasks(3), [GpuRecovered(node_id="n1", index=0)], next_order=7, tails={"out": 5}, time_s=1.5)
    journal.close()
    again = Journal(path)
    assert list(again.tasks().values()) == tasks(3)
    assert (again.id, again.next_order, again.tail("out"), again.last_number) == (journal.id, 7, 5, 1)
    assert [fact.event for fact in again.unpublished(10)] == [GpuRecovered(node_id="n1", index=0)]
    again.close()


def test_a_journal_of_a_newer_format_is_refused_and_stays_as_it_is(tmp_path: Path):
    path = tmp_path / "journal.db"
    Journal(path).close()
    noted = ("format", str(FORMAT + 1))
    change(path, f"PRAGMA user_version = {FORMAT + 1}")
    change(path, f"UPDATE notes SET value = {FORMAT + 1}, crc = {crc(*noted)} WHERE name = 'format'")
    before = path.read_bytes()
    with pytest.raises(JournalRefused, match=rf"journal\.db: a journal of format {FORMAT + 1}; .* 1 to {FORMAT}"):
        Journal(path)
    assert path.read_bytes() == before


def test_a_journal_that_was_cut_off_while_it_was_written_has_all_records_before_the_last(tmp_path: Path):
    path = tmp_path / "journal.db"
    journal = Journal(path)
    wal = tmp_path / "journal.db-wal"
    sizes = [wal.stat().st_size]
    for task in tasks(4):
        journal.record([task], next_order=len(sizes))
        sizes.append(wal.stat().st_size)
    for number, (begin, end) in enumerate(pairwise(sizes)):
        for size in (begin, begin + 1, (begin + end) // 2, end - 1):
            folder = tmp_path / f"cut-{size}"
            folder.mkdir()
            shutil.copy(path, folder)
            (folder / wal.name).write_bytes(wal.read_bytes()[:size])
            cut = Journal(folder / "journal.db")
            assert list(cut.tasks().values()) == tasks(4)[:number]
            assert cut.next_order == (number or None)
            cut.close()
    journal.close()


@pytest.mark.parametrize("kept_ratio", [0.001, 0.3, 0.9])
def test_a_journal_that_ends_too_early_is_set_aside_as_it_is(tmp_path: Path, kept_ratio: float):
    path = tmp_path / "journal.db"
    journal = Journal(path)
    journal.record(tasks(50))
    journal.close()
    cut = path.read_bytes()[: int(path.stat().st_size * kept_ratio)]
    path.write_bytes(cut)
    with pytest.raises(JournalDamaged, match=r"journal\.db: expected a whole SQLite .*(ends at byte|the head of)"):
        Journal(path)
    journal, said = opened(path)
    [aside] = tmp_path.glob("journal.damaged-*.db")
    assert journal.tasks() == {} and journal.next_order is None and aside.name in said
    assert aside.read_bytes() == cut
    journal.close()


def test_what_is_no_journal_is_set_aside(tmp_path: Path):
    path = tmp_path / "journal.db"
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(JournalDamaged, match=r"journal\.db: expected a whole SQLite file: file is not a database"):
        Journal(path)
    assert "it is kept as journal.damaged-" in opened(path)[1]


def test_a_bit_that_has_changed_is_found_or_changes_nothing(tmp_path: Path):
    """In the file and in its write-ahead log; a log is read up to the first frame that is damaged."""
    path = tmp_path / "journal.db"
    journal = Journal(path)
    before: list[tuple[dict[str, Task], int | None, list[Fact], int]] = []
    for number in range(4):
        journal.record(
            tasks(number), [GpuRecovered(node_id="n1", index=number)], next_order=number, tails={"out": number}
        )
        before.append(_content(journal))
    files = {each.name: each.read_bytes() for each in tmp_path.glob("journal.db*") if not each.name.endswith("-shm")}
    journal.close()
    files["closed"] = path.read_bytes()
    chance, set_aside = random.Random(7), Counter[str]()
    for name in sorted(files) * 150:
        changed = bytearray(files[name])
        bit = chance.randrange(8 * len(changed))
        changed[bit // 8] ^= 1 << bit % 8
        folder = tmp_path / "changed"
        folder.mkdir()
        for other, content in files.items():
            if name == "closed" or other == "closed":
                continue
            (folder / other).write_bytes(changed if other == name else content)
        if name == "closed":
            (folder / "journal.db").write_bytes(changed)
        found, said = opened(folder / "journal.db")
        set_aside[name] += bool(said)
        expected = [*before, ({}, None, [], 0)] if name.endswith("-wal") or said else before[-1:]
        assert _content(found) in expected, (name, bit)
        found.close()
        shutil.rmtree(folder)
    assert set_aside["closed"] > 10


def _content(journal: Journal) -> tuple[dict[str, Task], int | None, list[Fact], int]:
    return journal.tasks(), journal.next_order, journal.unpublished(100), journal.tail("out")


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("UPDATE tasks SET task = substr(task, 1, 40)", "task job-0.1"),
        (
            "UPDATE tasks SET task = replace(task, 'task.launch.v1', 'task.launch.v9')",
            "an order of type task.launch.v9",
        ),
    ],
)
def test_a_task_that_cannot_be_read_is_named(tmp_path: Path, statement: str, why: str):
    path = tmp_path / "journal.db"
    journal = Journal(path)
    journal.record(tasks(1))
    journal.close()
    change(path, statement.replace("(task", "(CAST(task AS TEXT)"))
    with pytest.raises(JournalDamaged, match=r"a row of its tasks is not as it was written"):
        Journal(path)
    right(path, "tasks", "key", "task")
    journal = Journal(path)
    with pytest.raises(JournalRefused, match=rf"journal\.db: a record cannot be read: .*{why}"):
        journal.tasks()
    journal.close()


def test_a_fact_of_a_newer_version_is_named(tmp_path: Path):
    path = tmp_path / "journal.db"
    journal = Journal(path)
    journal.record(facts=[GpuRecovered(node_id="n1", index=0)])
    journal.close()
    change(path, "UPDATE facts SET wire_type = 'gpu.recovered.v9'")
    right(path, "facts", "wire_type", "data", "time_s")
    journal = Journal(path)
    with pytest.raises(JournalRefused, match=r"journal\.db: a record cannot be read: gpu.recovered.v9 was written"):
        journal.unpublished(10)
    journal.close()


def test_without_room_what_is_recorded_waits_in_memory_in_its_order(small_disk: Path):
    path = small_disk / "journal.db"
    journal = Journal(path)
    journal.record([], [GpuRecovered(node_id="n1", index=0)], next_order=0)
    ballast = fill(small_disk)
    number = 0
    while not journal.is_full:
        number += 1
        journal.record(tasks(20), [GpuRecovered(node_id="n1", index=number)], next_order=number, tails={"out": number})
    journal.published(1)
    assert journal.begin_incarnation() == 1 and journal.begin_incarnation() == 2
    assert (journal.tail("out"), journal.next_order) == (number, number - 1)
    assert [fact.number for fact in journal.unpublished(10_000)] == list(range(2, number + 1))
    assert not journal.settle()
    ballast.unlink()
    assert journal.settle() and not journal.is_full
    journal.close()
    again = Journal(path)
    facts = again.unpublished(10_000)
    assert [fact.event for fact in facts] == [GpuRecovered(node_id="n1", index=each) for each in range(1, number + 1)]
    assert again.next_order == number and again.tail("out") == number and again.begin_incarnation() == 3
    again.close()


def test_a_journal_has_room_of_its_own(small_disk: Path):
    """A thousand records of a task that begins or ends, on a disk without a free byte."""
    path = small_disk / "journal.db"
    journal = Journal(path)
    assert journal.reserve() and journal.reserve()
    fill(small_disk)
    for number in range(1000):
        journal.record(tasks(1), [GpuRecovered(node_id="n1", index=number)], next_order=number)
        journal.published(number + 1)
        assert not journal.is_full, number
    journal.close()


def test_a_journal_of_before_checksums_is_brought_to_todays(tmp_path: Path):
    path = tmp_path / "journal.db"
    journal = Journal(path)
    journal.record(tasks(2), [GpuRecovered(node_id="n1", index=0)], next_order=3)
    journal.close()
    drops = [f"ALTER TABLE {table} DROP COLUMN crc" for table in ("notes", "tasks", "facts", "tails")]
    change(path, "DELETE FROM notes WHERE name = 'format'", *drops, "PRAGMA user_version = 2")
    shutil.copy(path, tmp_path / "damaged.db")
    journal = Journal(path)
    assert list(journal.tasks().values()) == tasks(2) and journal.next_order == 3
    journal.close()
    Journal(path).close()
    change(tmp_path / "damaged.db", "UPDATE tasks SET task = substr(task, 1, 40)")
    with pytest.raises(JournalDamaged, match=r"damaged\.db: a record cannot be read"):
        Journal(tmp_path / "damaged.db")
