"""The agent's journal: of older and newer formats, cut off, damaged."""

from __future__ import annotations

import shutil
import sqlite3
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from torch_agent.journal import FORMAT, Journal, JournalRefused

from libs.contracts.agent import GpuRecovered
from libs.contracts.placement import RestoreTask, StateSource
from libs.node.task import Task
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
    change(path, f"PRAGMA user_version = {FORMAT + 1}")
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
def test_a_journal_that_ends_too_early_is_refused_and_stays_as_it_is(tmp_path: Path, kept_ratio: float):
    path = tmp_path / "journal.db"
    journal = Journal(path)
    journal.record(tasks(50))
    journal.close()
    cut = path.read_bytes()[: int(path.stat().st_size * kept_ratio)]
    path.write_bytes(cut)
    with pytest.raises(JournalRefused, match=r"journal\.db: expected a whole SQLite .*(ends at byte|the head of)"):
        Journal(path)
    assert path.read_bytes() == cut


def test_what_is_no_journal_is_refused(tmp_path: Path):
    path = tmp_path / "journal.db"
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(JournalRefused, match=r"journal\.db: expected a whole SQLite file: file is not a database"):
        Journal(path)


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
    journal = Journal(path)
    with pytest.raises(JournalRefused, match=r"journal\.db: a record cannot be read: gpu.recovered.v9 was written"):
        journal.unpublished(10)
    journal.close()
