"""A core that starts without a snapshot on an archived log gets all of it, or says where the rest is."""

from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from libs.bus import codec
from libs.bus.connect import connect
from libs.bus.naming import CONTROL, log_id
from libs.bus.port import BusError, TopicLayout
from libs.contracts.base import Topic
from libs.inspect.archive import Archive, archive, give_back
from libs.kernel.replica import Replica
from libs.runtime.snapshots import Snapshots
from libs.runtime.starts import StartsUnknown, starts
from libs.testing.core_case import arrival
from libs.testing.faults import Faults, FaultyBus
from libs.testing.forgetful import dated
from libs.testing.shells import ShellCase, messages
from libs.testing.toy import TOY

JOBS = 12
BEFORE = 10


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/snapshots.db"


async def a_life(snapshots: Snapshots | None = None) -> ShellCase:
    """A shell that has handled some jobs and stopped in order."""
    bus = FaultyBus(await connect("memory:", "t"), Faults())
    await bus.create_topics(TopicLayout())
    case = ShellCase(TOY, bus, snapshots)
    await case.give(*(arrival(f"j{number}") for number in range(JOBS)))
    await case.run_to_end()
    return case


async def archived(case: ShellCase, directory: Path) -> None:
    """Archive, give back, and give the core something new to do."""
    opened = await archive(case.bus, directory, BEFORE, contiguous=True)
    await give_back(case.bus, opened, BEFORE, {TOY.name: case.position})
    assert await case.bus.begin_offset(CONTROL) == BEFORE
    await case.give(arrival("late"))


async def hash_of_all(case: ShellCase, directory: Path) -> str:
    """Of the state after archive and log."""
    replica = Replica(TOY)
    for message in [*Archive.open(directory).messages(CONTROL, 0), *await messages(case.bus.bus, Topic.CONTROL)]:
        replica.step(codec.record(dated(message)))
    return replica.state_hash


async def test_without_a_snapshot_the_archive_is_read_first(tmp_path: Path):
    case = await a_life()
    await archived(case, tmp_path / "archive")
    await case.run_to_end()
    assert case.shell.stats.records == 2 * JOBS + 2
    assert case.shell.replica.state_hash == await hash_of_all(case, tmp_path / "archive")


async def test_with_a_snapshot_the_archive_need_not_be_there(tmp_path: Path, url: str):
    snapshots = Snapshots(url, "t")
    case = await a_life(snapshots)
    await archived(case, tmp_path / "archive")
    (tmp_path / "archive").rename(tmp_path / "on tape")
    await case.run_to_end()
    assert case.shell.stats.records == 2
    assert case.shell.replica.state_hash == await hash_of_all(case, tmp_path / "on tape")
    snapshots.close()


async def test_without_snapshot_and_archive_nothing_starts(tmp_path: Path):
    case = await a_life()
    await archived(case, tmp_path / "archive")
    (tmp_path / "archive").rename(tmp_path / "on tape")
    with pytest.raises(BusError, match=r"control/0@0-9 of cell t are in the archive .*/archive, which is not there"):
        await case.run_to_end()


async def test_starts_are_those_of_the_newest_whole_snapshots(url: str):
    snapshots = Snapshots(url, "t")
    case = await a_life(snapshots)
    name = await log_id(case.bus)
    assert starts(url, "t", name, [TOY.name, "quota"]) == {TOY.name: 2 * JOBS, "quota": 0, "read models": 0}
    assert starts(url, "t", name, []) == {TOY.name: 2 * JOBS, "read models": 0}
    assert starts(url, "t", "another log", [TOY.name]) == {TOY.name: 0, "read models": 0}
    engine = create_engine(url)
    with engine.begin() as connection:
        newest = "(SELECT max(next_offset) FROM core_snapshots)"
        connection.execute(text(f"UPDATE core_snapshots SET body_digest = '' WHERE next_offset = {newest}"))
        for table in ("checkpoint", "gateway_index"):
            connection.execute(text(f"CREATE TABLE {table} (next_offset INTEGER, log_id TEXT)"))
        connection.execute(text("INSERT INTO checkpoint VALUES (17, :name)"), {"name": name})
        connection.execute(text("INSERT INTO gateway_index VALUES (15, 'another log')"))
    engine.dispose()
    found = starts(url, "t", name, [TOY.name])
    assert 0 < found[TOY.name] < 2 * JOBS
    assert (found["read models"], found["gateway"]) == (17, 0)
    snapshots.close()


def test_a_database_that_cannot_be_read_is_said(tmp_path: Path):
    (tmp_path / "no.db").write_text("this is no database, however long one looks at it")
    with pytest.raises(StartsUnknown, match="the database of snapshots and read models cannot be read"):
        starts(f"sqlite:///{tmp_path}/no.db", "t", "x", [TOY.name])
