"""The projection over a log: follows, resumes, is made anew, and survives what is around it."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa

from libs.bus import codec
from libs.bus.connect import connect
from libs.bus.port import Bus, BusUnavailable, Outgoing, Partition, Reader, TopicLayout
from libs.contracts.read_models import ROW_TYPES, EventRow, JobRow, Row
from libs.contracts.wire import Undecodable
from libs.inspect.archive import archive, give_back
from libs.testing.faults import Faults, FaultyBus
from services.projection.adapters.engine import waiting_helps
from services.projection.adapters.follow import DatabaseUnusable, Projection
from services.projection.adapters.read_model import Checkpoint, ReadModel
from services.projection.adapters.store import Store
from services.projection.core import Rows, apply
from services.projection.core.rows import key_of
from services.projection.tables import LIVE, NAMES
from tests.integration.gateway_cell import CONTROL, eventually, memory_bus
from tests.unit.projection.stored import stored
from tests.unit.projection.story import Story

pytest_plugins = ["libs.testing.postgres"]


async def told(story: Story, bus: Bus | None = None) -> Bus:
    """A log with the story on it."""
    bus = bus or await memory_bus()
    await bus.append([codec.outgoing(record.envelope) for record in story.records])
    return bus


def position(store: Store) -> int:
    """Where the live read model is, whatever version has made it; -1: there is none."""
    live = store.found().live
    return -1 if live is None else live.next_offset


async def expected(bus: Bus, row_type: type[Row]) -> list[Row]:
    """The rows by a fold of the whole log in memory."""
    rows = Rows()
    reader = await bus.reader({CONTROL: 0})
    for message in await reader.next_batch(10_000, 0.1):
        apply(rows, codec.record(message))
    return sorted(rows.all(row_type), key=key_of)


async def assert_up_to_date(store: Store, bus: Bus) -> None:
    for row_type in ROW_TYPES:
        assert stored(store, row_type) == await expected(bus, row_type), row_type.__name__


async def test_a_rebuild_makes_the_same_rows(store: Store) -> None:
    bus = await told(Story().running())
    projection = Projection(bus, store, asyncio.Event(), batch=3)
    assert await projection.catch_up() == 7
    await assert_up_to_date(store, bus)
    with store.engine.begin() as connection:
        connection.execute(LIVE.of[JobRow].update().values(name="tampered with"))
    assert await Projection(bus, store, asyncio.Event()).catch_up(rebuild=True) == 7
    await assert_up_to_date(store, bus)


async def test_it_goes_on_where_it_was(store: Store) -> None:
    story = Story().two_nodes()
    bus = await told(story)
    await Projection(bus, store, asyncio.Event()).catch_up()
    more = Story()
    more.records = story.granted().records[2:]
    await told(more, bus)
    assert await Projection(bus, store, asyncio.Event()).catch_up() == 4
    await assert_up_to_date(store, bus)


async def test_rows_are_loaded_anew_after_a_batch_that_was_not_stored(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what the fold has changed in them would be counted twice."""
    bus, save = await told(Story().running()), ReadModel.save
    calls = iter(range(100))

    def save_or_fail(self: ReadModel, rows: Rows, before: Checkpoint, after: Checkpoint, now_s: float) -> None:
        if next(calls) == 1:
            raise sa.exc.OperationalError("INSERT", {}, sqlite3.OperationalError("database is locked"))
        save(self, rows, before, after, now_s)

    monkeypatch.setattr(ReadModel, "save", save_or_fail)
    await Projection(bus, store, asyncio.Event(), batch=3).catch_up()
    assert next(calls) == 4, "three batches, one of them twice"
    await assert_up_to_date(store, bus)


async def test_it_follows_while_it_runs_and_stops_when_told(store: Store) -> None:
    bus, stop = await told(Story().two_nodes()), asyncio.Event()
    task = asyncio.create_task(Projection(bus, store, stop).run())

    async def at(offset: int) -> bool:
        return position(store) == offset

    await eventually(lambda: at(2))
    more = Story().two_nodes().granted()
    more.records = more.records[2:]
    await told(more, bus)
    await eventually(lambda: at(4))
    stop.set()
    await asyncio.wait_for(task, 120)
    await assert_up_to_date(store, bus)


@pytest.mark.parametrize("cause", ["another log", "a shorter log", "another fold"])
async def test_rows_that_cannot_be_continued_are_made_anew(store: Store, cause: str) -> None:
    await Projection(await told(Story().running()), store, asyncio.Event()).catch_up()
    story = Story().running() if cause != "a shorter log" else Story().two_nodes()
    if cause == "another log":
        story = Story().granted().two_nodes().two_nodes().two_nodes()
        first = story.records[0]
        envelope = msgspec.structs.replace(first.envelope, id="another-first-event")
        story.records[0] = msgspec.structs.replace(first, envelope=envelope)
    if cause == "another fold":
        with store.engine.begin() as connection:
            connection.execute(LIVE.checkpoint.update().values(digest="of another fold"))
            connection.execute(LIVE.of[JobRow].update().values(name="of another fold"))
    bus = await told(story)
    await Projection(bus, store, asyncio.Event()).catch_up()
    await assert_up_to_date(store, bus)


async def test_an_archived_log_is_the_same_log_and_is_read_whole(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bus = await told(Story().running())
    await Projection(bus, store, asyncio.Event()).catch_up()
    rows = {row_type: stored(store, row_type) for row_type in ROW_TYPES}
    await give_back(bus, await archive(bus, tmp_path / "archive", 5, contiguous=True), 5, {})
    assert await Projection(bus, store, asyncio.Event()).catch_up() == 7
    assert "made anew" not in caplog.text
    assert await Projection(bus, store, asyncio.Event(), batch=3).catch_up(rebuild=True) == 7
    assert {row_type: stored(store, row_type) for row_type in ROW_TYPES} == rows


async def test_a_log_that_is_away_is_waited_for(store: Store) -> None:
    faults = Faults()
    bus = FaultyBus(await told(Story().running()), faults)
    faults.fail("read", BusUnavailable("no broker answers (injected)"))
    faults.fail("read", BusUnavailable("no broker answers (injected)"))
    assert await Projection(bus, store, asyncio.Event()).catch_up() == 7
    await assert_up_to_date(store, bus)


async def test_a_table_that_is_missing_is_not_waited_for_and_is_there_after_the_next_start(store: Store) -> None:
    bus, stop = await told(Story().two_nodes()), asyncio.Event()
    running = asyncio.create_task(Projection(bus, store, stop).run())

    async def is_followed() -> bool:
        return position(store) == 2

    await eventually(is_followed)
    with store.engine.begin() as connection:
        connection.execute(sa.text(f"DROP TABLE {LIVE.of[JobRow].name}"))
    more = Story().two_nodes().granted()
    more.records = more.records[2:]
    await told(more, bus)
    with pytest.raises(
        DatabaseUnusable, match=f"{LIVE.of[JobRow].name}.*expected tables that this projection has made"
    ):
        async with asyncio.timeout(240):
            await running
    await Projection(bus, store, stop).catch_up()
    await assert_up_to_date(store, bus)


async def test_a_file_that_is_no_database_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("hello\n" * 1000)
    store = Store(f"sqlite:///{tmp_path / 'text.db'}", "lab")
    with pytest.raises(DatabaseUnusable, match="not a database"):
        async with asyncio.timeout(240):
            await Projection(await told(Story().running()), store, asyncio.Event()).catch_up()


async def test_a_database_that_is_away_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "not mounted yet"
    store = Store(f"sqlite:///{folder / 'read_models.db'}", "lab")
    folder.rmdir()
    bus = await told(Story().running())
    caught_up = asyncio.create_task(Projection(bus, store, asyncio.Event()).catch_up())

    async def tries_again() -> bool:
        return "cannot be used, trying again" in caplog.text

    await eventually(tries_again)
    folder.mkdir()
    assert await caught_up == 7
    await assert_up_to_date(store, bus)
    store.close()


def test_a_locked_database_is_waited_for(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'read_models.db'}", "lab")
    store.found()
    with store.engine.connect() as one, store.engine.connect() as other:
        other.exec_driver_sql("PRAGMA busy_timeout=0")
        one.exec_driver_sql("BEGIN IMMEDIATE")
        with pytest.raises(sa.exc.OperationalError) as locked:
            other.exec_driver_sql("BEGIN IMMEDIATE")
    assert waiting_helps(locked.value)
    store.close()


def test_a_server_that_does_not_answer_is_waited_for() -> None:
    with pytest.raises(sa.exc.OperationalError) as away:
        Store("postgresql+psycopg://unknown@127.0.0.1:1/none", "lab").found()
    assert waiting_helps(away.value)


async def test_two_of_them_do_no_harm(store: Store) -> None:
    bus, stop = await told(Story().running()), asyncio.Event()
    other = Store(store.engine.url.render_as_string(hide_password=False), "lab")
    tasks = [asyncio.create_task(Projection(bus, each, stop, batch=1).run()) for each in (store, other)]

    async def at_end() -> bool:
        return position(store) == 7

    await eventually(at_end)
    stop.set()
    await asyncio.gather(*tasks)
    other.close()
    await assert_up_to_date(store, bus)


async def test_an_altered_record_stops_it_at_its_place(store: Store) -> None:
    bus = await memory_bus()
    story = Story().running()
    for number, record in enumerate(story.records):
        outgoing = codec.outgoing(record.envelope)
        value = outgoing.value.replace(b"n1", b"n7") if number == 4 else outgoing.value
        await bus.append([Outgoing(outgoing.topic, outgoing.key, outgoing.headers, value)])
    with pytest.raises(Undecodable, match="control/0@4"):
        await Projection(bus, store, asyncio.Event(), batch=2).catch_up()
    assert position(store) == 4


async def test_history_is_there_after_a_restart_ray_44218(store: Store) -> None:
    """Ray #44218: the history of jobs was gone after the head had restarted. Here it is made of the log again."""
    bus = await told(Story().running())
    await Projection(bus, store, asyncio.Event()).catch_up()
    before = {row_type: stored(store, row_type) for row_type in ROW_TYPES}
    with store.engine.begin() as connection:
        for name in NAMES:
            connection.execute(sa.text(f"DROP TABLE {name}"))
    await Projection(bus, store, asyncio.Event()).catch_up()
    assert {row_type: stored(store, row_type) for row_type in ROW_TYPES} == before
    assert len(before[EventRow]) == 7


async def test_it_survives_being_killed_at_any_moment(tmp_path: Path) -> None:
    """The process is killed again and again while the log grows; the rows are those of one undisturbed fold."""
    log, database = f"sqlite:///{tmp_path / 'log.db'}", f"sqlite:///{tmp_path / 'read_models.db'}"
    bus = await connect(log, "lab")
    await bus.create_topics(TopicLayout())
    environment = {**os.environ, "SANJAYA_BUS": log, "SANJAYA_DATABASE": database, "SANJAYA_CELL": "lab"}
    environment |= {"SANJAYA_STATE_DIR": str(tmp_path), "SANJAYA_PROJECTION_BATCH": "5"}
    store = Store(database, "lab")
    try:
        for life in range(3):
            process = subprocess.Popen([sys.executable, "-m", "services.projection"], env=environment)
            before = position(store)
            for number in range(30):
                await told(_jobs(life, number), bus)

            async def moved(before: int = before) -> bool:
                return position(store) > before

            await eventually(moved, 240)
            process.send_signal(signal.SIGKILL)
            process.wait()
        await Projection(bus, store, asyncio.Event()).catch_up()
        await assert_up_to_date(store, bus)
        assert position(store) == 180
    finally:
        store.close()
        await bus.close()


def _jobs(life: int, number: int) -> Story:
    story = Story()
    story.granted(f"j-{life}-{number}")
    for place, record in enumerate(story.records):
        envelope = msgspec.structs.replace(record.envelope, id=f"{life}-{number}-{place}")
        story.records[place] = msgspec.structs.replace(record, envelope=envelope)
    return story


class Watched(FaultyBus):
    """Notes which partitions are read."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus, Faults())
        self.read: set[Partition] = set()

    async def reader(self, starts: Mapping[Partition, int]) -> Reader:
        self.read |= set(starts)
        return await super().reader(starts)


async def test_only_the_control_topic_is_read(store: Store) -> None:
    bus = Watched(await told(Story().two_nodes()))
    await Projection(bus, store, asyncio.Event()).catch_up()
    await Projection(bus, store, asyncio.Event()).catch_up()
    assert bus.read == {CONTROL}
