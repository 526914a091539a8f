"""Introspection on the embedded log: nodes that fall silent, bad records, the whole process."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from libs.bus import codec
from libs.bus.connect import connect
from libs.bus.port import BusUnavailable, LogFull, Outgoing, TopicLayout
from libs.contracts.admission import JobHeldBack
from libs.contracts.agent import NodeHeartbeat, NodeLeft
from libs.contracts.base import Event, Topic
from libs.contracts.envelope import Envelope, whole_microseconds
from libs.contracts.introspection import JobProfiled, JobRecovered, JobStuck, NodeLost, WindowClosed
from libs.contracts.placement import JobSucceeded
from libs.contracts.reasons import Reason
from libs.kernel.ids import request_id
from libs.runtime.clock import SteadyClock
from libs.runtime.listener import Listener
from libs.runtime.snapshots import Snapshots
from libs.runtime.stats import Stats
from libs.testing.core_case import arrival, node
from libs.testing.faults import Faults, FaultyBus
from libs.testing.introspection import minibatches, placed
from libs.testing.processes import Processes
from libs.testing.shells import messages
from services.introspection.adapters import ingest as ingesting
from services.introspection.adapters.ingest import Ingest
from services.introspection.core.watching import WATCH

TIMEOUT_S = 4.0
E = TypeVar("E", bound=Event)


class Cell:
    """An embedded log with introspection's ingest shell on it."""

    def __init__(self, bus: FaultyBus, snapshots: Snapshots) -> None:
        self.bus, self.snapshots = bus, snapshots
        self._given = 0

    async def give(self, *events: Event) -> None:
        for event in events:
            self._given += 1
            envelope = Envelope(
                id=request_id("test", str(self._given)),
                source="test",
                time_s=whole_microseconds(time.time()),
                event=event,
            )
            await self.bus.append([codec.outgoing(envelope)])

    @asynccontextmanager
    async def ingest(self, timeout_s: float = TIMEOUT_S, stuck_after_s: float = 300.0) -> AsyncIterator[Stats]:
        """Runs the shell as long as the block; a node may be silent, and a job stand, for so long."""
        stats, stop, clock = Stats("introspection"), asyncio.Event(), SteadyClock()
        control = Listener(WATCH, self.bus, self.snapshots, clock, stats, every_records=5, every_s=60.0)
        ingest = Ingest(
            self.bus,
            control,
            clock,
            stats,
            interval_s=4.0,
            lost_after_s=timeout_s,
            stuck_after_s=stuck_after_s,
        )
        running = asyncio.create_task(ingest.run(stop))
        yield stats
        stop.set()
        await running

    async def said(self, cls: type[E], topic: Topic = Topic.CONTROL) -> list[E]:
        events = [codec.record(message).envelope.event for message in await messages(self.bus.bus, topic)]
        return [event for event in events if isinstance(event, cls)]

    async def beat(self, seconds: float, *nodes: str) -> None:
        """Heartbeats of some nodes for a while, and nothing of the others."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await self.give(*(NodeHeartbeat(node_id=name, incarnation=1, running_tasks=0) for name in nodes))
            await asyncio.sleep(0.2)

    async def beat_until_lost(self, losses: int, *nodes: str) -> None:
        """Heartbeats of some nodes until so often a node was said to be lost."""
        async with asyncio.timeout(120):
            while len(await self.said(NodeLost)) < losses:
                await self.beat(0.2, *nodes)


@pytest.fixture
async def cell(tmp_path: Path) -> AsyncIterator[Cell]:
    bus = FaultyBus(await connect(f"sqlite:///{tmp_path}/log.db", "local"), Faults())
    await bus.create_topics(TopicLayout())
    snapshots = Snapshots(f"sqlite:///{tmp_path}/read_models.db", "local")
    yield Cell(bus, snapshots)
    snapshots.close()
    await bus.close()


async def test_a_node_that_falls_silent_is_lost_once_and_over_restarts(cell: Cell):
    await cell.give(node("n1", 1), node("n2", 1), node("n3", 1), NodeLeft(node_id="n3", incarnation=1))
    async with cell.ingest():
        await cell.beat_until_lost(1, "n1")
    [lost] = await cell.said(NodeLost)
    assert (lost.node_id, lost.incarnation) == ("n2", 1)
    assert lost.silent_s >= TIMEOUT_S
    async with cell.ingest():
        await cell.beat(TIMEOUT_S + 1.5, "n1")
    assert len(await cell.said(NodeLost)) == 1
    await cell.give(node("n2", 1, incarnation=2))
    async with cell.ingest():
        await cell.beat_until_lost(2, "n1")
    assert [event.incarnation for event in await cell.said(NodeLost)] == [1, 2]


async def test_a_job_of_which_nothing_is_said_is_stuck_once_over_restarts_until_something_is_said(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ingesting, "LOOK_FOR_STUCK_EVERY_S", 0.2)
    await cell.give(node("n1", 1), arrival("j"))

    async def until_said(cls: type[Event]) -> None:
        async with asyncio.timeout(120):
            while not await cell.said(cls):
                await asyncio.sleep(0.1)

    async with cell.ingest(stuck_after_s=1.0):
        await until_said(JobStuck)
        await asyncio.sleep(1.5)
    async with cell.ingest(stuck_after_s=1.0):
        await asyncio.sleep(2.5)
    [stuck] = await cell.said(JobStuck)
    assert (stuck.job_id, stuck.awaited, stuck.owed_by) == ("j", "word", ["admission"])
    assert stuck.stood_s >= 1.0
    await cell.give(JobHeldBack(job_id="j", reason=Reason(code="DependencyNotMet", message="waits for k")))
    async with cell.ingest(stuck_after_s=1.0):
        await until_said(JobRecovered)
        await asyncio.sleep(2.5)
    [over] = await cell.said(JobRecovered)
    assert (over.job_id, over.alarm) == ("j", "stuck")
    assert len(await cell.said(JobStuck)) == 1


@pytest.mark.parametrize(
    ("operation", "error"),
    [("read", BusUnavailable("no broker (injected)")), ("commit", LogFull("the disk is full (injected)"))],
)
async def test_an_outage_of_the_log_is_no_silence_of_the_nodes(cell: Cell, operation: str, error: BusUnavailable):
    """Nor is a log that can be read and takes nothing."""
    timeout_s = 10.0  # a busy machine lengthens the pauses, and may by four times
    await cell.give(node("n1", 1))
    async with cell.ingest(timeout_s):
        for _ in range(5):
            await asyncio.sleep(timeout_s / 4)
            cell.bus.faults.fail(operation, error)
        await cell.beat(timeout_s / 2, "n1")
        assert await cell.said(NodeLost) == []
        await cell.beat_until_lost(1)
    assert len(await cell.said(NodeLost)) == 1


async def test_a_bad_window_goes_to_the_dead_letters_and_the_rest_goes_on(cell: Cell):
    window = WindowClosed(
        job_id="j",
        attempt=1,
        window_start_s=10.0,
        window_s=2.0,
        ranks=1,
        minibatches=5,
        minibatches_total=5,
        rate_per_s=2.5,
        loss=None,
        memory_peak_bytes=0,
        memory_min_bytes=0,
    )
    await cell.give(placed("j"))
    await cell.bus.append([Outgoing(Topic.PROFILES, "j", [("ce_type", b"x")], b"\xff")])
    await cell.give(window)
    async with cell.ingest() as stats:
        async with asyncio.timeout(120):
            while stats.decisions < 2:
                await asyncio.sleep(0.02)
    assert len(await cell.said(JobProfiled)) == 1
    [dead] = await messages(cell.bus.bus, Topic.DEADLETTER)
    headers = dict(dead.headers)
    assert (dead.key, dead.value) == ("j", b"\xff")
    assert (headers["x-service"], headers["x-topic"], headers["x-offset"]) == (b"introspection", b"profiles", b"0")
    assert b"header 'ce_time' is missing" in headers["x-error"]


@pytest.fixture
async def processes() -> AsyncIterator[Processes]:
    processes = Processes({})
    yield processes
    await processes.kill_all()


async def test_the_process_measures_a_running_job(cell: Cell, processes: Processes, tmp_path: Path):
    environment = {
        "SANJAYA_BUS": f"sqlite:///{tmp_path}/log.db",
        "SANJAYA_STATE_DIR": str(tmp_path),
        "SANJAYA_WINDOW_S": "0.5",
        "SANJAYA_WINDOW_GRACE_S": "0.2",
        "SANJAYA_PROFILE_INTERVAL_S": "1",
    }
    await cell.give(node("n1", 1), placed("j"))
    process = await processes.start("services.introspection", **environment)
    total = 0
    async with asyncio.timeout(120):
        while len(await cell.said(JobProfiled)) < 3:
            total += 5
            await cell.give(minibatches("j", total), NodeHeartbeat(node_id="n1", incarnation=1, running_tasks=1))
            await asyncio.sleep(0.1)
    profiles = await cell.said(JobProfiled)
    assert [p.minibatches_total for p in profiles] == sorted({p.minibatches_total for p in profiles})
    assert all(profile.rate_per_s == pytest.approx(5.0) for profile in profiles)
    await cell.give(JobSucceeded(job_id="j", attempt=1))
    process.terminate()
    _, said = await process.communicate()
    assert process.returncode == 0, said
    assert await cell.said(NodeLost) == []
