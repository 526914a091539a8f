"""Introspection's shells, killed at any moment of their work."""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count, pairwise
from typing import Any

import pytest

from libs.bus import codec
from libs.bus.port import Bus
from libs.contracts.agent import RankSample, TaskSampled
from libs.contracts.base import Event, Topic
from libs.contracts.envelope import Envelope
from libs.contracts.introspection import JobProfiled, JobRecovered, JobStalled, LossDiverged, WindowClosed
from libs.contracts.placement import JobPlaced
from libs.kernel.ids import request_id
from libs.runtime.clock import ManualClock
from libs.runtime.listener import Listener
from libs.runtime.stats import Stats
from libs.testing.faults import Crash, Faults, FaultyBus, crashing_bus, unknown
from libs.testing.introspection import minibatches, placed
from libs.testing.shells import messages
from libs.testing.thorough import sample as pick
from services.introspection.adapters.embedded_windows import SESSION, EmbeddedWindows
from services.introspection.adapters.ingest import Ingest
from services.introspection.core.watching import WATCH
from services.introspection.core.windows import Rules, envelope

JOBS = ("a", "b", "c")
SECONDS = 30
RULES = Rules(window_s=2.0, grace_s=1.0)

Windows = dict[tuple[str, float], WindowClosed]
Run = Callable[[asyncio.Event], Coroutine[Any, Any, None]]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many moments to be killed at."""
    for module in ("embedded_windows", "ingest"):
        monkeypatch.setattr(f"services.introspection.adapters.{module}.BATCH", 7)
    monkeypatch.setattr("libs.runtime.listener.BATCH", 7)


async def give(bus: Bus, *facts: tuple[float, Event]) -> None:
    envelopes = [
        Envelope(id=request_id("test", f"{n}/{time_s}/{event.subject}"), source="test", time_s=time_s, event=event)
        for n, (time_s, event) in enumerate(facts)
    ]
    await bus.append([codec.outgoing(envelope) for envelope in envelopes])


async def run_until_read(bus: FaultyBus, session: str, topic: Topic, start: Callable[[], Run]) -> None:
    """Run a shell until its positions are at the end of a topic; a new one after each crash."""
    ends = {partition: await bus.end_offset(partition) for partition in await bus.partitions(topic)}

    def done() -> bool:
        positions = bus.positions.get(session, {})
        return all(not end or (p in positions and positions[p].next_offset >= end) for p, end in ends.items())

    while not done():
        bus.faults.revive()
        stop = asyncio.Event()
        running = asyncio.create_task(start()(stop))
        waiting = asyncio.create_task(bus.until(done))
        await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        waiting.cancel()
        try:
            await running
        except Crash:
            continue


def telemetry() -> list[tuple[float, Event]]:
    """Three jobs report every second; then one record far in the future closes everything before it."""
    facts: list[tuple[float, Event]] = []
    for second in range(1, SECONDS + 1):
        facts += [(1000.0 + second + 0.1, minibatches(job, second * 5)) for job in JOBS]
    return facts


async def windows_with(crash_at: int | None) -> tuple[Windows, Faults]:
    """First word about each window."""
    bus = await crashing_bus(crash_at)
    await give(bus, *telemetry())
    clock = ManualClock()

    def start() -> Run:
        clock.advance(3.0)  # what was silent so long is closed
        return EmbeddedWindows(bus, RULES, clock).run

    async def ticking() -> None:
        while True:
            clock.advance(0.01)  # slow against reading: no node falls silent because of records not read yet
            await asyncio.sleep(0)

    ticker = asyncio.create_task(ticking())
    await run_until_read(bus, SESSION, Topic.TELEMETRY, start)
    ticker.cancel()
    found: Windows = {}
    for message in await messages(bus.bus, Topic.PROFILES):
        window = codec.record(message).envelope.event
        assert isinstance(window, WindowClosed)
        found.setdefault((window.job_id, window.window_start_s), window)
    return found, bus.faults


@pytest.mark.thorough
@pytest.mark.usefixtures("dated_by_sources")
async def test_no_crash_loses_or_alters_a_window():
    undisturbed, faults = await windows_with(None)
    assert sum(window.minibatches for window in undisturbed.values()) == len(JOBS) * SECONDS * 5
    for moment in pick(range(len(faults.moments)), by_default=40):
        found, _ = await windows_with(moment)
        assert found == undisturbed, f"crash at moment {moment} ({faults.moments[moment]})"


async def profiles_with(windows: Windows, crash_at: int | None, doubt: str = "") -> tuple[list[JobProfiled], Faults]:
    """What ingest makes of the windows of three running jobs, each window sent twice."""
    bus = await crashing_bus(crash_at)
    if doubt:
        for _ in range(3):
            bus.faults.fail(doubt, unknown())
    await give(bus, *((0.0, placed(job)) for job in JOBS))
    for window in windows.values():
        await bus.append([codec.outgoing(envelope(window))] * 2)
    clock = ManualClock()

    def start() -> Run:
        stats = Stats("introspection")
        control = Listener(WATCH, bus, None, clock, stats, every_records=1000, every_s=1000.0)
        return Ingest(bus, control, clock, stats, interval_s=4.0, lost_after_s=20.0).run

    await give(bus, *((0.0, placed(f"{job}-ended")) for job in JOBS))
    await run_until_reported(bus, start, {job: max(s for j, s in windows if j == job) for job in JOBS})
    facts = [codec.record(message).envelope for message in await messages(bus.bus, Topic.CONTROL)]
    profiles = [fact.event for fact in facts if isinstance(fact.event, JobProfiled)]
    assert len({fact.id for fact in facts}) == len(facts)
    return sorted(profiles, key=lambda p: (p.job_id, p.window_start_s)), bus.faults


async def run_until_reported(bus: FaultyBus, start: Callable[[], Run], last: dict[str, float]) -> None:
    """Run ingest until every job's measured time is reported up to its last full interval."""

    async def reported() -> bool:
        until: dict[str, float] = {}
        for message in await messages(bus.bus, Topic.CONTROL):
            event = codec.record(message).envelope.event
            if isinstance(event, JobProfiled):
                until[event.job_id] = event.window_start_s + event.window_s
        return all(last[job] + 2.0 - until.get(job, 0.0) < 4.0 for job in JOBS)

    while not await reported():
        bus.faults.revive()
        stop = asyncio.Event()
        running = asyncio.create_task(start()(stop))
        while not running.done() and not await reported():
            await asyncio.sleep(0)
        stop.set()
        try:
            await running
        except Crash:
            continue


@pytest.mark.thorough
async def test_no_crash_loses_doubles_or_alters_a_profile():
    windows, _ = await windows_with(None)
    undisturbed, faults = await profiles_with(windows, None)
    starts = [(profile.job_id, profile.window_start_s) for profile in undisturbed]
    assert len(starts) == len(set(starts))
    for job in JOBS:
        own = [profile for profile in undisturbed if profile.job_id == job]
        assert all(a.window_start_s + a.window_s == b.window_start_s for a, b in pairwise(own))
    for moment in pick(range(len(faults.moments)), by_default=40):
        found, _ = await profiles_with(windows, moment)
        assert found == undisturbed, f"crash at moment {moment} ({faults.moments[moment]})"


async def test_a_commit_in_doubt_neither_loses_nor_doubles():
    windows, _ = await windows_with(None)
    undisturbed, _ = await profiles_with(windows, None)
    for doubt in ("commit", "commit.done"):
        found, _ = await profiles_with(windows, None, doubt)
        assert found == undisturbed


EXPECTED = [JobStalled, JobRecovered, JobStalled, LossDiverged]


def sample(done: int, quiet_s: float, nonfinite: int) -> TaskSampled:
    rank = RankSample(
        rank=0,
        minibatches_total=done,
        quiet_s=quiet_s,
        longest_quiet_s=0.0,
        p99_s=0.1,
        nonfinite=nonfinite,
        loss_nonfinite="nan" if nonfinite else "",
    )
    return TaskSampled(
        job_id="a", attempt=1, node_id="n1", running=True, ranks=[rank], computing=False, idle_s=quiet_s / 10
    )


async def alarms_with(crash_at: int | None) -> tuple[list[Envelope], Faults]:
    """What ingest makes of a job that hangs, goes on, hangs again, and diverges; each until it is on the log."""
    bus = await crashing_bus(crash_at)
    await give(bus.bus, (0.0, placed("a")))
    clock, given = ManualClock(), count()

    async def told() -> list[Envelope]:
        facts = [codec.record(message).envelope for message in await messages(bus.bus, Topic.CONTROL)]
        return [fact for fact in facts if not isinstance(fact.event, JobPlaced)]

    def begun() -> tuple[asyncio.Event, asyncio.Task[None]]:
        bus.faults.revive()
        stop, stats = asyncio.Event(), Stats("introspection")
        control = Listener(WATCH, bus, None, clock, stats, every_records=1000, every_s=1000.0)
        ingest = Ingest(bus, control, clock, stats, interval_s=4.0, lost_after_s=1e9)
        return stop, asyncio.create_task(ingest.run(stop))

    stop, running = begun()
    for number, (done, quiet_s, nonfinite) in enumerate([(40, 70.0, 0), (41, 0.0, 0), (41, 70.0, 0), (41, 70.0, 5)], 1):
        while len(await told()) < number:
            if running.done():
                assert isinstance(running.exception(), Crash)
                stop, running = begun()
            await give(bus.bus, (float(next(given)), sample(done, quiet_s, nonfinite)))
            await asyncio.sleep(0)
    for _ in range(20):  # nothing of it is told again
        await give(bus.bus, (float(next(given)), sample(41, 70.0, 5)))
        await asyncio.sleep(0)
    stop.set()
    await asyncio.gather(running, return_exceptions=True)
    return await told(), bus.faults


async def test_no_crash_loses_or_doubles_an_alarm():
    undisturbed, faults = await alarms_with(None)
    assert [type(fact.event) for fact in undisturbed] == EXPECTED
    for moment in pick(range(len(faults.moments)), by_default=40):
        found, _ = await alarms_with(moment)
        assert [type(fact.event) for fact in found] == EXPECTED, f"crash at moment {moment} ({faults.moments[moment]})"
        assert [fact.id for fact in found] == [fact.id for fact in undisturbed]
