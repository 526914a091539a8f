"""What is said when a log's file cannot be used, and what happens to one that can."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.bus.connect import connect
from libs.bus.embedded import transactions
from libs.bus.embedded.address import Address, Keep
from libs.bus.embedded.bus import EmbeddedBus
from libs.bus.port import BusError, BusUnavailable, Position
from libs.contracts.base import Topic
from libs.testing.bus_contract import LAYOUT
from libs.testing.bus_contract.log import CONTROL, text, texts, until_end


async def open_log(path: Path, options: str = "") -> EmbeddedBus:
    """A log with topics, unless it is opened for reading only."""
    bus = await EmbeddedBus.connect(f"sqlite:///{path}{options}", "lab")
    if "mode=ro" not in options:
        await bus.create_topics(LAYOUT)
    return bus


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory of one's own, and no rights beyond it: root would be stopped by nothing."""
    with tempfile.TemporaryDirectory() as directory:
        if os.geteuid() != 0:
            yield Path(directory)
            return
        os.chown(directory, 65534, 65534)
        os.seteuid(65534)
        try:
            yield Path(directory)
        finally:
            os.seteuid(0)


@pytest.mark.parametrize(
    ("url", "path", "read_only"),
    [
        ("sqlite:////var/lib/log.db", "/var/lib/log.db", False),
        ("sqlite:///log.db", str(Path.cwd() / "log.db"), False),
        ("sqlite:///a%20b/log.db?mode=ro", str(Path.cwd() / "a%20b/log.db"), True),
        ("sqlite:///~/log.db?mode=rw", str(Path.home() / "log.db"), False),
    ],
)
def test_a_url_names_a_file(url: str, path: str, read_only: bool) -> None:
    address = Address.parse(url)
    assert (str(address.path), address.read_only) == (path, read_only)


def test_a_url_may_say_what_is_kept_of_short_lived_topics() -> None:
    keep = Address.parse("sqlite:///log.db?keep_messages=10&keep_s=2.5").keep
    assert keep == dict.fromkeys((Topic.TELEMETRY, Topic.PROFILES, Topic.LOGS), Keep(10, 2.5))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite:", "expected sqlite:///path"),
        ("sqlite:///", "expected sqlite:///path"),
        ("sqlite://host/log.db", "expected sqlite:///path"),
        ("sqlite:///dir/", "expected sqlite:///path"),
        ("sqlite:///log.db?mode=rx", "mode 'rx', expected rw or ro"),
        ("sqlite:///log.db?moed=ro", "unknown option 'moed'"),
        ("sqlite:///log.db?ro", "options cannot be read"),
        ("sqlite:///log.db?keep_s=0", "keep_s '0', expected a number above 0"),
        ("sqlite:///log.db?keep_messages=many", "keep_messages 'many', expected a number above 0"),
        ("postgres:///log.db", "expected sqlite:///path/log.db, kafka://host:port, https://host:port or memory:"),
    ],
)
async def test_urls_that_cannot_be_understood(url: str, said: str) -> None:
    with pytest.raises(BusError, match=said):
        await connect(url, "lab")


async def test_what_is_no_log_is_not_touched(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.db"
    garbage.write_bytes(b"these are no database pages, but long enough to look like some" * 100)
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE accounts (id)")
    connection.close()
    before = garbage.read_bytes(), other.read_bytes()
    for path, said in ((garbage, "is no SQLite database"), (other, "database of another program")):
        for options in ("", "?mode=ro"):
            with pytest.raises(BusError, match=said) as raised:
                await open_log(path, options)
            assert not isinstance(raised.value, BusUnavailable)
    assert (garbage.read_bytes(), other.read_bytes()) == before


async def test_a_log_of_another_layout_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    await (await open_log(path)).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version=7")
    connection.close()
    with pytest.raises(BusError, match="has layout 7; this version of Sanjaya reads layouts 1 and 2"):
        await open_log(path)


async def test_a_place_where_no_file_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BusError, match="cannot be made"):
        await open_log(tmp_path / "file" / "log.db")
    with pytest.raises(BusError, match="cannot be opened"):
        await open_log(tmp_path)
    with pytest.raises(BusError, match="there is no log at"):
        await open_log(tmp_path / "none.db", "?mode=ro")
    assert not (tmp_path / "none.db").exists()


async def test_a_file_that_may_not_be_written(directory: Path) -> None:
    path = directory / "log.db"
    await (await open_log(path)).close()
    path.chmod(0o444)
    with pytest.raises(BusError, match="cannot be written: no permission"):
        await open_log(path)


async def test_a_closed_log_in_a_read_only_directory_can_be_read(directory: Path) -> None:
    bus = await open_log(directory / "log.db")
    await bus.append([text(Topic.CONTROL, "k", "v")])
    await bus.close()
    directory.chmod(0o555)
    try:
        audit = await open_log(directory / "log.db", "?mode=ro")
        assert texts(await until_end(audit, CONTROL)) == ["v"]
        await audit.close()
    finally:
        directory.chmod(0o755)


async def test_opened_for_reading_a_log_is_followed_and_never_written(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    bus = await open_log(path)
    audit = await open_log(path, "?mode=ro")
    session = await bus.open_session("one")
    await session.commit([text(Topic.CONTROL, "k", "v")], {CONTROL: Position(3, "m")})
    reader = await audit.reader({CONTROL: 0})
    assert texts(await reader.next_batch(5, 5.0)) == ["v"]
    assert await audit.committed("one", CONTROL) == Position(3, "m")
    await session.commit([text(Topic.CONTROL, "k", "w")])
    assert texts(await reader.next_batch(5, 5.0)) == ["w"]
    for attempt in (
        audit.open_session("one"),
        audit.append([text(Topic.CONTROL, "k", "v")]),
        audit.create_topics(LAYOUT),
    ):
        with pytest.raises(BusError, match="open for reading only"):
            await attempt
    await session.commit([], {CONTROL: Position(4)})
    await audit.close()
    await bus.close()


async def test_a_full_disk_refuses_a_commit_whole_and_the_session_goes_on_later(tmp_path: Path) -> None:
    bus = await open_log(tmp_path / "log.db")
    session = await bus.open_session("one")
    await session.commit([text(Topic.CONTROL, "k", "before")], {CONTROL: Position(1)})
    await limit_pages(bus, 40)
    large = text(Topic.CONTROL, "k", "x" * 1_000_000)
    with pytest.raises(BusUnavailable, match="disk is full"):
        await session.commit([text(Topic.CONTROL, "k", "small"), large], {CONTROL: Position(2)})
    assert await session.position(CONTROL) == Position(1)
    await limit_pages(bus, 1_000_000)
    await session.commit([text(Topic.CONTROL, "k", "after")], {CONTROL: Position(2)})
    assert texts(await until_end(bus, CONTROL)) == ["before", "after"]
    await bus.close()


async def limit_pages(bus: EmbeddedBus, pages: int) -> None:
    """A disk of this size."""
    await bus._writer.run(lambda writer: writer._connection.execute(f"PRAGMA max_page_count={pages}").fetchall())


async def test_a_log_that_was_removed_takes_nothing_more(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    bus = await open_log(path)
    session = await bus.open_session("one")
    reader = await bus.reader({CONTROL: 0})
    path.rename(tmp_path / "moved.db")
    with pytest.raises(BusError, match="removed or replaced"):
        await session.commit([text(Topic.CONTROL, "k", "into the void")])
    with pytest.raises(BusError, match="removed or replaced"):
        await reader.next_batch(1, 5.0)
    await bus.close()


async def test_a_writer_waits_for_its_turn_and_gives_up_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = await open_log(tmp_path / "log.db")
    session = await bus.open_session("one")
    other = sqlite3.connect(tmp_path / "log.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(transactions, "PATIENCE_S", 0.02)
    with pytest.raises(BusUnavailable, match="waited for other writers in vain"):
        await session.commit([text(Topic.CONTROL, "k", "in vain")])
    other.execute("COMMIT")
    other.close()
    await session.commit([text(Topic.CONTROL, "k", "in turn")])
    assert texts(await until_end(bus, CONTROL)) == ["in turn"]
    await bus.close()
    with pytest.raises(BusError, match="closed"):
        await session.commit([])


async def test_the_file_can_be_read_with_the_sqlite_shell(tmp_path: Path) -> None:
    bus = await open_log(tmp_path / "log.db")
    await bus.append([text(Topic.CONTROL, "job-1", '{"n":1}')])
    await bus.close()
    with sqlite3.connect(tmp_path / "log.db") as connection:
        rows = connection.execute("SELECT topic, partition, offset, key, value FROM log").fetchall()
    connection.close()
    assert rows == [("lab.control", 0, 0, "job-1", '{"n":1}')]
