"""What older versions have written is read: logs, snapshots, read models, an agent's journal and task folder.

The files are in `old/` (see its README) and were written by the code of their time. A change that breaks reading one
of them is a defect of the change: it needs an upcast, or, for what is a cache, a rule that drops the old content.
"""

from __future__ import annotations

import asyncio
import gzip
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from torch_agent.folders import TaskFolder
from torch_agent.journal import Journal

from libs.bus.memory import MemoryBus, MemoryLog
from libs.bus.port import Partition, TopicLayout
from libs.contracts.agent import JobStarted
from libs.contracts.base import Topic
from libs.contracts.placement import JobPlaced
from libs.contracts.read_models import ROW_TYPES, JobState
from libs.inspect.conservation import Conservation, conservation
from libs.inspect.differences import Kind
from libs.inspect.jobs import jobs_of
from libs.inspect.jsonl import read_jsonl
from libs.inspect.logs import Log
from libs.inspect.replay import refold
from libs.inspect.verify import verify
from libs.kernel.replica import Replica, SnapshotDamaged, SnapshotOutdated
from libs.node.seen import Ended
from libs.node.task import Status
from libs.runtime.snapshots import Snapshots
from schemas.generate import FOLDER as SCHEMAS
from services.projection.adapters.follow import Projection
from services.projection.adapters.store import Store
from services.projection.core import Rows, apply
from services.projection.core.rows import key_of
from services.projection.tables import LIVE
from services.roster import NAMES, SERVICES, service
from tests.golden import keep
from tests.unit.projection.stored import stored, tables_of

CELL = "golden"
CONTROL = Partition(Topic.CONTROL, 0)
FOLDERS = sorted(folder for folder in keep.OLD.iterdir() if folder.name[0].isdigit())
ENDINGS = {
    "job.succeeded.v1": JobState.SUCCEEDED,
    "job.cancelled.v1": JobState.CANCELLED,
    "job.abandoned.v1": JobState.FAILED,
    "job.rejected.v1": JobState.REJECTED,
}

DECIDED = {cls.wire_type for each in SERVICES for cls in each.emits}

every_version = pytest.mark.parametrize("old", FOLDERS, ids=lambda folder: folder.name)


def books(log: Log) -> Conservation:
    """The accounts of a log. What placement's state says of its GPUs, folded of the log, must agree with them."""
    accounts = conservation(log.records())
    state = refold(log.records(), SERVICES)["placement"].state
    held = sum(1 for node in state.nodes.values() for gpu in node.gpus if gpu.holders)
    assert (held, len(state.jobs)) == (accounts.gpus_held, accounts.jobs_total - sum(accounts.jobs.values()))
    return accounts


def lines_of(old: Path, name: str = "cell.jsonl.gz") -> list[bytes]:
    return gzip.decompress((old / name).read_bytes()).splitlines(keepends=True)


def log_of(old: Path, name: str = "cell.jsonl.gz") -> Log:
    return read_jsonl(lines_of(old, name), f"{old.name}/{name}")


def wire_types(old: Path) -> Counter[str]:
    """{wire type: records} as the lines say, without the contracts of today."""
    return Counter(msgspec.json.decode(line)["headers"]["ce_type"] for line in lines_of(old)[1:])


def unpacked(old: Path, name: str, folder: Path) -> Path:
    """A copy of a packed file that may be written to."""
    path = folder / name
    path.write_bytes(gzip.decompress((old / f"{name}.gz").read_bytes()))
    return path


def bus_of(old: Path) -> MemoryBus:
    """A bus with the control records of the log, byte for byte."""
    log = MemoryLog()
    log.create(CELL, TopicLayout())
    log.messages(CELL, CONTROL).extend(m for m in log_of(old).messages if m.partition == CONTROL)
    return MemoryBus(CELL, log)


def test_the_versions_of_the_history_are_there():
    assert len(FOLDERS) >= 11
    for old in FOLDERS:
        names = {path.name for path in old.iterdir()}
        assert {"cell.jsonl.gz", "snapshots.db.gz", "readmodels.db.gz", "agent"} <= names, old.name


def test_the_version_at_hand_can_be_kept(tmp_path: Path):
    """So that it will be: whatever the recorder calls is there, and leaves the files that the tests here read."""
    scratch, kept = tmp_path / "scratch", tmp_path / "kept"
    scratch.mkdir()
    kept.mkdir()
    keep.record(keep.ROOT, scratch, kept)
    assert {path.relative_to(kept).parts[0] for path in kept.rglob("*")} == {
        "agent",
        "cell.jsonl.gz",
        "readmodels.db.gz",
        "snapshots.db.gz",
    }
    assert lines_of(kept) == (keep.ROOT / keep.LOG).read_bytes().splitlines(keepends=True)
    assert (kept / "agent" / "journal.db").exists()
    assert TaskFolder(kept / "agent" / "tasks" / "j-ended.1").look(starting=False, started=True).ended is not None


@every_version
def test_every_record_is_read(old: Path):
    records = list(log_of(old).records())
    assert len(records) == wire_types(old).total()
    assert {record.topic for record in records} == {Topic.CONTROL, Topic.ORDERS}


@every_version
def test_every_event_version_has_its_stored_example(old: Path):
    assert not [name for name in wire_types(old) if not (SCHEMAS / "events" / f"{name}.example.json").exists()]


@every_version
def test_the_books_balance(old: Path):
    found, seen = books(log_of(old)), wire_types(old)
    assert found.violations == []
    assert found.jobs_total == seen["job.arrived.v1"] > 0
    assert found.jobs == {state.value: seen[name] for name, state in ENDINGS.items() if seen[name]}
    assert (found.gpus_held, found.gpus_free) == (0, found.gpus_total)


@every_version
def test_the_audit_folds_what_it_cannot_decide_again_and_finds_nothing_wrong(old: Path):
    found = verify(log_of(old), SERVICES)
    assert found.ok, "\n".join(found.first.lines() if found.first else [])
    assert found.decisions == 0, "the log does not name its rules"
    assert found.refolded == sum(count for name, count in wire_types(old).items() if name in DECIDED)
    assert found.versions == len(NAMES)


@every_version
def test_a_record_altered_removed_or_doubled_in_an_old_log_is_named(old: Path):
    log = log_of(old)
    messages = list(log.messages)
    [placed, *_] = [at for at, m in enumerate(messages) if dict(m.headers)["ce_type"] == b"job.placed.v1"]
    message = messages[placed]
    altered = replace(message, value=message.value.replace(b'"attempt":1', b'"attempt":7'))
    assert altered != message
    for tampered, kind in (
        ([*messages[:placed], altered, *messages[placed + 1 :]], Kind.ALTERED),
        ([*messages[:placed], *messages[placed + 1 :]], Kind.MISSING),
        ([*messages[: placed + 1], message, *messages[placed + 1 :]], Kind.REPEATED),
    ):
        found = verify(Log(log.header, tampered), SERVICES)
        assert kind in [difference.kind for difference in found.details], kind


@every_version
def test_every_job_has_a_last_word(old: Path):
    jobs = jobs_of(log_of(old).records())
    assert len(jobs) == wire_types(old)["job.arrived.v1"]
    for job in jobs.values():
        assert job.ended and job.said.reason.code, job.job_id


@every_version
def test_each_snapshot_is_read_or_refused_with_a_sentence(old: Path, tmp_path: Path):
    """A shell goes on without one that is refused. Whatever else is raised would end it."""
    records = list(log_of(old).records())
    snapshots = Snapshots(f"sqlite:///{unpacked(old, 'snapshots.db', tmp_path)}", CELL)
    try:
        kept = [found for core in SERVICES for found in snapshots.load(core.name, records[0].envelope.id, len(records))]
    finally:
        snapshots.close()
    assert {found.service for found in kept} >= {"admission", "quota", "placement", "migration", "failure_analysis"}
    for found in kept:
        try:
            replica = Replica.restore(service(found.service), found.open())
        except (SnapshotDamaged, SnapshotOutdated) as error:
            assert str(error).startswith(f"snapshot of {found.service}")
        else:
            replica.check()
            assert 0 < replica.next_offset == found.next_offset


@every_version
async def test_read_models_get_the_tables_of_today_and_the_rows_of_a_fresh_fold(old: Path, tmp_path: Path):
    """They are of another digest; those of the revisions have none. New ones are made from the log and swapped in."""
    bus, rows = bus_of(old), Rows()
    for record in log_of(old).control():
        apply(rows, record)
    store = Store(f"sqlite:///{unpacked(old, 'readmodels.db', tmp_path)}", CELL)
    try:
        end = await bus.end_offset(CONTROL)
        before = store.found().live
        assert before is not None and before.next_offset == end
        assert (before.digest == "") == sa.inspect(store.engine).has_table("alembic_version")
        assert await Projection(bus, store, asyncio.Event()).catch_up() == end
        assert store.live.checkpoint().digest == store.digest
        assert tables_of(store) == set(LIVE.metadata.tables)
        in_file = sa.MetaData()
        in_file.reflect(store.engine)
        assert sorted(columns_of(in_file)) == sorted(columns_of(LIVE.metadata))
        for row_type in ROW_TYPES:
            assert stored(store, row_type) == sorted(rows.all(row_type), key=key_of), row_type.table
    finally:
        store.close()


def columns_of(metadata: sa.MetaData) -> Iterator[tuple[str, str, str, bool, bool]]:
    for table in metadata.tables.values():
        for column in table.columns:
            kind = column.type.compile(sqlite.dialect())
            yield table.name, column.name, kind, bool(column.nullable), column.primary_key
        for index in table.indexes:
            yield table.name, "index", ", ".join(each.name for each in index.columns), False, False


@pytest.fixture
def state(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the state directory of an agent."""
    return Path(shutil.copytree(request.param / "agent", tmp_path / "agent"))


every_state = pytest.mark.parametrize("state", FOLDERS, indirect=True, ids=lambda folder: folder.name)


@every_state
def test_the_journal_is_read(state: Path):
    journal = Journal(state / "journal.db")
    try:
        tasks, waiting = journal.tasks(), journal.unpublished(10)
        assert {key: task.status for key, task in tasks.items()} == {
            "j-ended.1": Status.EXITED,
            "j-running.1": Status.RUNNING,
        }
        assert [fact.event for fact in waiting] == [JobStarted(job_id="j-running", attempt=1, node_id="n1", pid=1)]
        assert journal.next_order == 2
    finally:
        journal.close()


@every_state
def test_an_adopted_task_keeps_its_gpus(state: Path):
    """An agent that takes the task for one without GPUs would start another one on them."""
    journal = Journal(state / "journal.db")
    try:
        running = journal.tasks()["j-running.1"]
        assert running.occupies
        assert running.gpu_indices == running.wanted_gpus == running.order.gpu_indices == [1]
    finally:
        journal.close()


@every_state
def test_the_folder_of_an_ended_task_is_read(state: Path):
    folder = TaskFolder(state / "tasks" / "j-ended.1")
    seen = folder.look(starting=False, started=True)
    assert seen.launched and seen.pid == folder_pid(folder)
    assert seen.ended == Ended(exit_code=3, signal=None, outcome="exited", rank=0)
    assert [path.name for path in folder.outputs()] == ["rank-0.err", "rank-0.out"]
    assert (folder.path / "rank-0.out").read_text() == "trained\n"


def folder_pid(folder: TaskFolder) -> int:
    """The rank's process, as its page is named."""
    (page,) = folder.pages.glob("rank-0-*.page")
    return int(page.stem.rpartition("-")[2])


def test_the_queue_that_was_called_fifo_is_still_one():
    """A log under that policy: today's `fifo` is an allocation policy, which would stop the running job."""
    old = keep.OLD / "2026-11-21-4579ffe"
    records = [r for r in log_of(old, "fifo.jsonl.gz").records() if r.topic == Topic.CONTROL]
    replica = Replica(service("placement"))
    decided = [output.event for record in records for output in replica.step(record)]
    assert replica.state.policy == "strict_fifo"
    assert placed(decided) == placed(record.envelope.event for record in records)
    assert [job_id for job_id, _ in placed(decided)] == ["first", "wide", "narrow", "last"]


def placed(events: Any) -> list[tuple[str, Any]]:
    """Which jobs are placed, in order, and where."""
    return [(event.job_id, event.gang) for event in events if isinstance(event, JobPlaced)]
