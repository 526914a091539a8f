"""A read model of another version is built beside the one that is read, and swapped in; readers notice nothing else."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import msgspec
import pytest
import sqlalchemy as sa

from libs.bus import codec
from libs.bus.connect import connect
from libs.bus.port import Bus, Fenced, Message, Outgoing, Partition, Reader, TopicLayout
from libs.contracts.read_models import ROW_TYPES, JobRow
from libs.contracts.wire import Undecodable
from libs.runtime import exits
from libs.testing.faults import Faults, FaultyBus
from services.gateway.app import create_app
from services.gateway.door import Gateway
from services.projection.adapters.follow import Projection
from services.projection.adapters.store import Found, Store
from services.projection.core import Rows, apply
from services.projection.core.rows import key_of
from services.projection.tables import BUILDING, NAMES
from tests.e2e.second_tree import Replacement, environment, second_tree
from tests.integration.gateway_cell import CONTROL, direct, eventually, memory_bus, settings
from tests.unit.projection.stored import stored, tables_of
from tests.unit.projection.story import Story

PATIENCE_S = 250.0
"""How long a test waits for what certainly comes, also on a busy machine."""
pytest_plugins = ["libs.testing.postgres"]

OLDER = "digest of an older version"
CLIENTS = 20
JOBS, STATUS = "/v1/jobs?limit=200", "/v1/status"


@pytest.fixture
def older(url: str) -> Iterator[Store]:
    store = Store(url, "lab", OLDER)
    yield store
    store.close()


def jobs(first: int, count: int) -> list[Outgoing]:
    """Records of `count` jobs that are granted quota, three each; the first has number `first`."""
    told = []
    for number in range(first, first + count):
        for place, record in enumerate(Story().granted(f"j-{number}").records):
            told.append(codec.outgoing(msgspec.structs.replace(record.envelope, id=f"{number}-{place}")))
    return told


PER_JOB = len(jobs(0, 1))


async def log_of(count: int) -> Bus:
    bus = await memory_bus()
    await bus.append(jobs(0, count))
    return bus


async def catch_up(bus: Bus, store: Store, **options: bool) -> int:
    return await Projection(bus, store, asyncio.Event(), batch=50).catch_up(**options)


async def assert_is_whole(store: Store, bus: Bus) -> None:
    """The live rows are those of a fold of the whole log, and beside them are the gateway's own tables at most."""
    rows = Rows()
    reader = await bus.reader({CONTROL: 0})
    while messages := await reader.next_batch(10_000, 0.1):
        for message in messages:
            apply(rows, codec.record(message))
    await reader.close()
    assert store.live.checkpoint().next_offset == await bus.end_offset(CONTROL)
    for row_type in ROW_TYPES:
        assert stored(store, row_type) == sorted(rows.all(row_type), key=key_of), row_type.__name__
    assert tables_of(store) - {"gateway_index", "gateway_keys"} == set(NAMES)


class Gate(FaultyBus):
    """A log that lets readers get no further than `closed_at` until the gate is opened."""

    def __init__(self, bus: Bus, closed_at: int) -> None:
        super().__init__(bus, Faults())
        self.closed_at = closed_at
        self.reached, self.open = asyncio.Event(), asyncio.Event()

    async def reader(self, starts: Mapping[Partition, int]) -> Reader:
        return _Gated(self, await super().reader(starts))


@dataclass
class _Gated(Reader):
    gate: Gate
    reader: Reader
    waiting: list[Message] = field(default_factory=list)

    async def next_batch(self, limit: int, timeout_s: float) -> list[Message]:
        self.waiting = self.waiting or await self.reader.next_batch(limit, timeout_s)
        if self.waiting and self.waiting[-1].offset >= self.gate.closed_at:
            self.gate.reached.set()
            await self.gate.open.wait()
        batch, self.waiting = self.waiting, []
        return batch

    async def close(self) -> None:
        await self.reader.close()


@dataclass
class Seen:
    """What one client has read."""

    answers: int = 0
    positions: list[int] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def take(self, path: str, answer: httpx2.Response) -> None:
        self.answers += 1
        if answer.status_code != 200:
            self.wrong.append(f"{answer.status_code} {answer.text}")
            return
        position = int(answer.headers["Sanjaya-Offset"]) + 1
        if self.positions and position < self.positions[-1]:
            self.wrong.append(f"went back from {self.positions[-1]} to {position}")
        self.positions.append(position)
        found = answer.json()
        listed = sum(found["jobs"].values()) if path == STATUS else len(found["items"]) if path == JOBS else None
        # The position is read first, so that rows may be newer; never are they fewer, nor those of a part of the log.
        if listed is not None and (listed < -(-position // PER_JOB) or listed not in (20, 40, 41)):
            self.wrong.append(f"{path} has {listed} jobs at position {position}")


@asynccontextmanager
async def reading_clients(
    folder: Path, bus: Bus, url: str
) -> AsyncIterator[tuple[list[Seen], list[asyncio.Task[None]]]]:
    """A gateway, and clients that read through it again and again until the block ends."""
    gateway, ended = Gateway(settings(folder, database=url), bus), asyncio.Event()
    async with gateway.running(), direct(create_app(gateway)) as client:

        async def reads(seen: Seen, paths: tuple[str, ...]) -> None:
            while not ended.is_set():
                for path in paths:
                    seen.take(path, await client.get(path))

        async def is_ready() -> bool:
            return (await client.get("/readyz")).status_code == 200

        await eventually(is_ready, PATIENCE_S)
        seen = [Seen() for _ in range(CLIENTS)]
        paths = (JOBS, "/v1/jobs/j-0", "/v1/events?limit=5", STATUS)
        tasks = [
            asyncio.create_task(reads(each, paths[turn % 4 :] + paths[: turn % 4])) for turn, each in enumerate(seen)
        ]
        try:
            yield seen, tasks
        finally:
            ended.set()
            await asyncio.gather(*tasks)


async def test_clients_read_on_while_it_is_built_and_see_one_swap(
    store: Store, older: Store, url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "services.projection")
    bus = await log_of(20)
    old_end = await catch_up(bus, older)
    caplog.clear()
    await bus.append(jobs(20, 20))
    gate, stop = Gate(bus, closed_at=old_end // 2), asyncio.Event()

    async def each_has_read(answers: int) -> None:
        wanted = [one.answers + answers for one in seen]

        async def has_read() -> bool:
            for task in clients:
                assert not task.done(), task.result()
            return all(one.answers >= least for one, least in zip(seen, wanted, strict=True))

        await eventually(has_read, PATIENCE_S)

    async with reading_clients(tmp_path, bus, url) as (seen, clients):
        projection = asyncio.create_task(Projection(gate, store, stop, batch=3).run())
        await gate.reached.wait()
        await each_has_read(5)
        assert {position for one in seen for position in one.positions} == {old_end}, "while it is half built"
        gate.open.set()

        async def is_swapped() -> bool:
            live = store.found().live
            return live is not None and live.digest == store.digest

        await eventually(is_swapped, PATIENCE_S)
        await bus.append(jobs(40, 1))
        await each_has_read(5)
    stop.set()
    await projection
    assert [one.wrong for one in seen] == [[]] * CLIENTS
    new_end = 40 * PER_JOB
    for one in seen:
        assert one.positions[0] == old_end and one.positions[-1] >= new_end
        assert not [position for position in one.positions if old_end < position < new_end], "half-built rows"
    assert caplog.text.count("the read models are swapped in") == 1
    await catch_up(bus, store)
    await assert_is_whole(store, bus)
    assert tables_of(store) >= {"gateway_index", "gateway_keys"}, "what is the gateway's own stays"


ROW_CLASS = Replacement(
    "libs/contracts/read_models.py",
    '    """A user has paused it."""\n',
    '    """A user has paused it."""\n    colour: str = "none"\n',
)
FOLD = Replacement(
    "services/projection/core/arrivals.py", "        name=spec.name,\n", "        name=spec.name.upper(),\n"
)
COMMENT = Replacement(
    "services/projection/core/arrivals.py", "        name=spec.name,\n", "        name=spec.name,  # as it was given\n"
)


def process(tree: Path | None, url: str, log: str, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """A projection of a tree (None: of this one) as its own process."""
    told = {"SANJAYA_BUS": log, "SANJAYA_DATABASE": url, "SANJAYA_CELL": "lab", "SANJAYA_STATE_DIR": str(folder)}
    variables = {**os.environ, **told, "SANJAYA_PROJECTION_BATCH": "1", **({} if tree is None else environment(tree))}
    command = [sys.executable, "-m", "services.projection", *arguments]
    return subprocess.Popen(command, env=variables, cwd=tree, stderr=subprocess.PIPE, text=True)


async def once(tree: Path | None, url: str, log: str, folder: Path) -> str:
    """Run it up to the log's end; returns what it has logged."""
    running = process(tree, url, log, folder, "--once")
    _, said = await asyncio.to_thread(running.communicate)
    assert running.returncode == exits.OK, said
    return said


@asynccontextmanager
async def file_log(folder: Path, count: int) -> AsyncIterator[tuple[str, Bus]]:
    log = f"sqlite:///{folder / 'log.db'}"
    bus = await connect(log, "lab")
    await bus.create_topics(TopicLayout())
    await bus.append(jobs(0, count))
    try:
        yield log, bus
    finally:
        await bus.close()


@pytest.mark.parametrize("change", [ROW_CLASS, FOLD], ids=["row class", "fold"])
async def test_a_change_of_a_row_class_or_of_the_fold_rebuilds_by_itself_and_the_way_back_too(
    change: Replacement, store: Store, url: str, tmp_path: Path
) -> None:
    changed = second_tree(tmp_path / "tree", [change])
    async with file_log(tmp_path, 2) as (log, bus):
        await catch_up(bus, store)
        said = await once(changed, url, log, tmp_path)
        assert "made anew" in said and "swapped in" in said
        live = store.found().live
        assert live is not None and live.digest != store.digest
        with store.engine.connect() as connection:
            query = "SELECT colour FROM jobs" if change is ROW_CLASS else "SELECT name FROM jobs"
            found = set(connection.execute(sa.text(query)).scalars())
        assert found == ({"none"} if change is ROW_CLASS else {job.spec["name"].upper() for job in all_jobs(store)})
        assert "made anew" not in await once(changed, url, log, tmp_path)
        assert "swapped in" in await once(None, url, log, tmp_path)  # the older version, over a newer one's tables
        await assert_is_whole(store, bus)


def all_jobs(store: Store) -> list[JobRow]:
    return [row for row in stored(store, JobRow) if isinstance(row, JobRow)]


async def test_a_change_of_a_comment_rebuilds_nothing(store: Store, url: str, tmp_path: Path) -> None:
    changed = second_tree(tmp_path / "tree", [COMMENT])
    async with file_log(tmp_path, 2) as (log, bus):
        await catch_up(bus, store)
        assert "made anew" not in await once(changed, url, log, tmp_path)


def killed_in_the_middle(running: subprocess.Popen[str], store: Store, end: int) -> int | None:
    """Kill the process if its build is between its begin and its end; it cannot move while this looks.

    Returns:
        The position at which it was killed.
    """
    if not store.building.is_there():
        return None
    with store.engine.begin() as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        position = connection.execute(sa.select(BUILDING.checkpoint.c.next_offset).with_for_update()).scalar_one()
        if not 0 < position < end:
            return None
        running.send_signal(signal.SIGKILL)
        running.wait()
        return int(position)


async def test_a_build_that_was_killed_goes_on_and_leaves_nothing(
    store: Store, older: Store, url: str, tmp_path: Path
) -> None:
    async with file_log(tmp_path, 200) as (log, bus):
        end = await catch_up(bus, older)
        running = process(None, url, log, tmp_path)
        at: list[int] = []

        async def is_killed() -> bool:
            at.extend(filter(None, [await asyncio.to_thread(killed_in_the_middle, running, store, end)]))
            return bool(at)

        await eventually(is_killed, PATIENCE_S)
        found = store.found()
        assert found.live is not None and (found.live.digest, found.live.next_offset) == (OLDER, end)
        assert found.building is not None and 0 < found.building.next_offset < end
        assert "swapped in" in await once(None, url, log, tmp_path)
        await assert_is_whole(store, bus)


async def test_what_a_killed_build_of_another_version_has_left_is_dropped(store: Store, older: Store) -> None:
    bus = await log_of(3)
    await catch_up(bus, store)
    older.build()
    await catch_up(bus, store)
    await assert_is_whole(store, bus)


async def test_past_tables_that_were_not_dropped_are_dropped_at_the_next_start(store: Store, older: Store) -> None:
    bus = await log_of(3)
    await catch_up(bus, older)
    store.build()
    assert store.swap(store.found())  # and killed before it could tidy up
    assert len(tables_of(store)) == 2 * len(NAMES)
    await catch_up(bus, store)
    await assert_is_whole(store, bus)


async def test_the_one_that_is_started_later_wins_and_the_older_one_ends(store: Store, older: Store) -> None:
    """Both follow a log that grows. The older one keeps its rows up to date until they are replaced, and then ends."""
    bus, stop = await log_of(30), asyncio.Event()
    await catch_up(bus, older)
    before = asyncio.create_task(Projection(bus, older, stop, batch=3).run())
    await bus.append(jobs(await bus.end_offset(CONTROL), 1))

    async def follows() -> bool:
        live = older.found().live
        return live is not None and live.next_offset == await bus.end_offset(CONTROL)

    await eventually(follows, PATIENCE_S)  # it has been started, and the other one has not
    later = asyncio.create_task(Projection(bus, store, stop, batch=3).run())

    async def is_swapped() -> bool:
        await bus.append(jobs(await bus.end_offset(CONTROL), 1))
        return is_of(store.found(), store.digest)

    await eventually(is_swapped, PATIENCE_S)
    await bus.append(jobs(await bus.end_offset(CONTROL), 1))
    with pytest.raises(Fenced, match="another version"):
        await asyncio.wait_for(before, PATIENCE_S)
    stop.set()
    await later
    await catch_up(bus, store)
    await assert_is_whole(store, bus)


def is_of(found: Found, digest: str) -> bool:
    return found.live is not None and found.live.digest == digest


async def test_an_older_one_that_is_started_again_fences_a_build(store: Store, older: Store) -> None:
    bus, stop = await log_of(3), asyncio.Event()
    end = await catch_up(bus, older)
    gate = Gate(bus, closed_at=end // 2)
    building = asyncio.create_task(Projection(gate, store, stop, batch=1).run())
    await gate.reached.wait()
    await catch_up(bus, older)
    gate.open.set()
    with pytest.raises(Fenced, match="another version"):
        await asyncio.wait_for(building, PATIENCE_S)
    assert is_of(older.found(), OLDER)
    assert tables_of(store) == set(NAMES)


async def test_two_of_one_version_build_one_read_model(store: Store, older: Store, url: str) -> None:
    bus, stop = await log_of(20), asyncio.Event()
    await catch_up(bus, older)
    other = Store(url, "lab")
    tasks = [asyncio.create_task(Projection(bus, each, stop, batch=1).run()) for each in (store, other)]

    async def is_swapped() -> bool:
        return is_of(store.found(), store.digest)

    await eventually(is_swapped, PATIENCE_S)
    stop.set()
    await asyncio.gather(*tasks)
    other.close()
    await catch_up(bus, store)
    await assert_is_whole(store, bus)


async def test_a_log_that_this_version_cannot_read_leaves_the_newer_rows_alone(store: Store, older: Store) -> None:
    """The way back ends where the log has an event that the older version does not know; what is read stays."""
    bus = await log_of(3)
    [last] = jobs(3, 1)[-1:]
    headers = [(name, b"job.unheard-of.v1" if name == "ce_type" else value) for name, value in last.headers]
    end = await catch_up(bus, older)
    await bus.append([Outgoing(last.topic, last.key, headers, last.value)])
    with pytest.raises(Undecodable):
        await catch_up(bus, store)
    live = store.found().live
    assert live is not None and (live.digest, live.next_offset) == (OLDER, end)


async def test_a_rebuild_that_is_asked_for_is_built_beside_too(store: Store) -> None:
    bus = await log_of(5)
    end = await catch_up(bus, store)
    gate = Gate(bus, closed_at=end // 2)
    rebuild = asyncio.create_task(Projection(gate, store, asyncio.Event(), batch=1).catch_up(rebuild=True))
    await gate.reached.wait()
    assert store.live.checkpoint().next_offset == end
    assert len(all_jobs(store)) == 5
    gate.open.set()
    assert await rebuild == end
    await assert_is_whole(store, bus)
