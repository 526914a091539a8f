"""The broker is killed and comes back: shells wait, go on, and lose and double nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from libs.bus import codec
from libs.bus.connect import connect
from libs.bus.local_broker import LocalBroker
from libs.bus.port import Bus, Fenced, Outgoing, Position, TopicLayout
from libs.contracts.base import Topic
from libs.contracts.envelope import Envelope
from libs.runtime.clock import SteadyClock
from libs.runtime.committer import Committer
from libs.runtime.recovery import CONTROL
from libs.runtime.shell import Options, Shell
from libs.runtime.stats import Stats
from libs.testing.core_case import arrival, node
from libs.testing.introspection import minibatches
from libs.testing.processes import give, until
from libs.testing.shells import messages
from services.admission.service import SERVICE as ADMISSION
from services.introspection.adapters.faust_windows import FaustWindows
from services.introspection.core.windows import Rules

CELL = "broker"
JOBS = 40


@pytest.fixture
def broker(tmp_path: Path) -> LocalBroker:
    return LocalBroker(tmp_path / "kafka")


@pytest.fixture
async def bus(broker: LocalBroker) -> AsyncIterator[Bus]:
    await asyncio.to_thread(broker.start)
    bus = await connect(f"kafka://{broker.bootstrap}", CELL)
    await bus.create_topics(TopicLayout())
    yield bus
    await bus.close()
    await asyncio.to_thread(broker.stop)


async def kill_and_restart(broker: LocalBroker) -> None:
    await asyncio.to_thread(broker.kill)
    await asyncio.to_thread(broker.start)


async def log(bus: Bus, topic: Topic) -> list[Envelope]:
    return [codec.record(message).envelope for message in await messages(bus, topic)]


async def test_a_core_goes_on_after_the_broker_was_killed(broker: LocalBroker, bus: Bus):
    stop = asyncio.Event()
    own_bus = await connect(f"kafka://{broker.bootstrap}", CELL)
    stats = Stats(ADMISSION.name)
    running = asyncio.create_task(supervised(own_bus, stats, stop))
    await give(bus, 0, [node("n1", 4)])
    for number in range(2):
        await give(bus, 100 * (number + 1), [arrival(f"j{number}-{job}") for job in range(JOBS)])
        await until(lambda: committed(running, stats), 240.0)
        await kill_and_restart(broker)
    await until(lambda: all_decided(running, bus), 200.0)
    stop.set()
    await running
    await own_bus.close()
    envelopes = await log(bus, Topic.CONTROL)
    assert len({envelope.id for envelope in envelopes}) == len(envelopes) == 1 + 4 * JOBS


async def supervised(bus: Bus, stats: Stats, stop: asyncio.Event) -> None:
    """A broker that is away for longer than a transaction may last fences the shell: its supervisor starts it anew."""
    while not stop.is_set():
        with suppress(Fenced):
            await Shell(ADMISSION, bus, options=Options(batch_records=5), stats=stats).run(stop)


async def committed(running: asyncio.Task[None], stats: Stats) -> bool:
    """Whether something is on the log, which can be reached."""
    assert not running.done(), running.result()
    return stats.commits > 0 and not stats.log_away


async def all_decided(running: asyncio.Task[None], bus: Bus) -> bool:
    """Whether the log has the node, the jobs and a decision on each."""
    assert not running.done(), running.result()
    return len(await log(bus, Topic.CONTROL)) >= 1 + 4 * JOBS


@pytest.mark.parametrize("commits", [1, 2, 3])
async def test_what_was_committed_outlasts_a_killed_broker(broker: LocalBroker, bus: Bus, commits: int):
    """The broker is killed before it has marked the transaction as ended: it must do so when it is back."""
    session = await bus.open_session("writer")
    for number in range(1, commits + 1):
        message = Outgoing(Topic.CONTROL, "key", [], str(number).encode())
        await session.commit([message], {CONTROL: Position(number)})
    await kill_and_restart(broker)
    async with asyncio.timeout(240.0):
        after = await Committer.open(bus, "writer", [CONTROL], asyncio.Event())
        assert after.committed == {CONTROL: Position(commits)}
        assert [message.value for message in await messages(bus, Topic.CONTROL)] == [b"1", b"2", b"3"][:commits]


@pytest.mark.usefixtures("dated_by_sources")
async def test_faust_goes_on_after_the_broker_was_killed(broker: LocalBroker, bus: Bus):
    stop = asyncio.Event()
    shell = FaustWindows(f"kafka://{broker.bootstrap}", CELL, Rules(window_s=2.0, grace_s=0.0), SteadyClock())
    running = asyncio.create_task(shell.run(stop))
    await give(bus, 1000, [minibatches("j", 5 * second) for second in range(1, 6)])
    await until(lambda: windows(bus, 2), 240.0)
    await kill_and_restart(broker)
    await give(bus, 1005, [minibatches("j", 5 * second) for second in range(6, 11)])
    await until(lambda: windows(bus, 5), 240.0)
    stop.set()
    await running


async def windows(bus: Bus, number: int) -> bool:
    """Whether so many different windows are on profiles."""
    return len({envelope.id for envelope in await log(bus, Topic.PROFILES)}) >= number
