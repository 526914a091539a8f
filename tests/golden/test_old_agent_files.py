"""What agents of older versions have stored is read by the agent of today, for ever.

`old/agent/<date>-<what was new>/` has a journal, tasks' folders and pages that the code of that time made, and in
`expected.json` what that code read there (old/agent/make.py). A new version of one of these gets a folder more.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import pytest
from torch_agent.folders import TaskFolder
from torch_agent.harness import control, page
from torch_agent.harness.control import ask_to_save, create_control, current_turn, turn_to
from torch_agent.journal import FORMAT, Journal
from torch_agent.layouts import LAYOUTS
from torch_agent.pages import minibatches_done, read_page
from torch_agent.records import VERSIONS, Shim, read_record

from libs.contracts.wire import encode_data
from libs.node.seen import Ended

OLD = sorted(path.parent for path in (Path(__file__).parent / "old" / "agent").glob("*/expected.json"))
RENAMED = {"obeyed": "acknowledged"}
"""{name of a part of a page when it was stored: its name today}; on the page itself parts have no names."""


@pytest.fixture(params=OLD, ids=lambda path: path.name)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy, to be changed."""
    return Path(shutil.copytree(request.param, tmp_path / "stored"))


def expected(stored: Path) -> dict[str, Any]:
    return dict(json.loads((stored / "expected.json").read_text()))


def within(older: Any, newer: Any) -> bool:
    """Whether it has all that the older one had; it may have fields more."""
    if isinstance(older, dict):
        return isinstance(newer, dict) and all(key in newer and within(older[key], newer[key]) for key in older)
    return bool(older == newer)


def test_the_journal_has_what_was_recorded(stored: Path):
    then = expected(stored)
    for _ in range(2):  # as it was stored, and as it has been brought to today's format
        journal = Journal(stored / "journal.db")
        assert within(then["tasks"], {key: msgspec.to_builtins(task) for key, task in journal.tasks().items()})
        assert list(journal.tasks()) == list(then["tasks"])
        assert all(task.gpu_indices == task.wanted_gpus == task.order.gpu_indices for task in journal.tasks().values())
        facts = [(fact.number, fact.time_s, fact.event.wire_type, fact.event) for fact in journal.unpublished(99)]
        assert len(facts) == len(then["facts"]) >= 2
        for (*now, event), (*before, data) in zip(facts, then["facts"], strict=True):
            assert now == before and within(data, json.loads(encode_data(event)))
        assert {path: journal.tail(path) for path in then["tails"]} == then["tails"] != {}
        assert (journal.id, journal.next_order) == (then["journal_id"], then["next_order"])
        assert journal.last_number == then["facts"][-1][0]
        journal.close()


def test_tasks_that_have_ended_are_seen_to_have(stored: Path):
    trained, failed = (TaskFolder(stored / "tasks" / f"{job}.1") for job in ("trained", "failed"))
    assert trained.look(starting=False, started=True).ended == Ended(exit_code=0, signal=None, outcome="exited")
    assert failed.look(starting=False, started=True).ended == Ended(
        exit_code=1, signal=None, outcome="exited", rank=0, stderr_tail="no data\n"
    )
    assert [path.name for path in trained.outputs()] == ["rank-0.err", "rank-0.out"]


def test_a_task_that_was_running_is_known_by_its_processes_and_its_pages(stored: Path):
    folder = TaskFolder(stored / "tasks" / "running.1")
    record = folder.path / "shim.json"
    shim = read_record(record, Shim)
    assert shim is not None and shim.pid > 1 and list(shim.ranks) == ["0"]
    gone = subprocess.Popen(["true"])  # those numbers may have been given to other processes
    gone.wait()
    text = record.read_text()
    for pid in (shim.pid, *shim.ranks.values()):
        text = text.replace(f": {pid}", f": {gone.pid}")
    record.write_text(text)
    ended = folder.look(starting=False, started=True).ended
    assert ended is not None and ended.outcome == "lost"
    assert minibatches_done(folder.pages) > 50


def test_pages_say_what_they_said(stored: Path):
    then = expected(stored)["pages"]
    assert len(then) == 2
    for path, reading in then.items():
        found = read_page(stored / path)
        now = {RENAMED.get(key, key): value for key, value in reading.items()}
        assert found is not None and within(now, asdict(found))
        assert found.listens == (control_version(stored) is not None)


def test_what_the_agent_of_today_writes_for_an_older_harness_is_where_that_looks(stored: Path):
    folder = stored / "tasks" / "running.1" / "pages"
    older, version = folder / control.NAME, control_version(stored)
    if version is None:
        return  # that harness does not listen
    size, turn = older.stat().st_size, current_turn(folder)
    turn_to(folder, suspend=True)
    turn_to(folder, suspend=False)
    assert current_turn(folder) > turn and older.stat().st_size == size
    numbers = [int.from_bytes(older.read_bytes()[at : at + 8], "little") for at in range(0, min(size, 16), 8)]
    assert numbers[0] == current_turn(folder)
    if version > 1:
        assert ask_to_save(folder) == numbers[1] + 1
        assert int.from_bytes(older.read_bytes()[8:16], "little") == numbers[1] + 1


def control_version(stored: Path) -> int | None:
    path = stored / "tasks" / "running.1" / "pages" / control.NAME
    if not path.exists():
        return None
    content = path.read_bytes()
    return {8: 1, 16: 2}.get(len(content)) or int(control.MARK.unpack_from(content, control.MARK_AT)[1])


def test_each_version_that_is_read_has_files_here(tmp_path: Path):
    pages = {page.HEAD.unpack_from(path.read_bytes())[1] for folder in OLD for path in folder.rglob("*.page")}
    assert pages == set(LAYOUTS) and page.VERSION in pages
    assert {control_version(folder) for folder in OLD} - {None} == set(control.LAYOUTS)
    records = {json.loads(path.read_text()).get("version", 1) for folder in OLD for path in folder.rglob("exit.json")}
    assert records == set(VERSIONS)
    assert {journal_format(folder, tmp_path) for folder in OLD} == set(range(1, FORMAT + 1))
    create_control(tmp_path)
    assert (tmp_path / control.NAME).stat().st_size == control.LAYOUTS[max(control.LAYOUTS)].size


def journal_format(folder: Path, scratch: Path) -> int:
    copy = shutil.copy(folder / "journal.db", scratch)
    with closing(sqlite3.connect(copy)) as db:
        return max(1, int(db.execute("PRAGMA user_version").fetchone()[0]))
