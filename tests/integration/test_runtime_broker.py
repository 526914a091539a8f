"""The broker is killed and comes back: shells wait, go on, and lose and double nothing."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.bus import codec
from libs.bus.connect import connect
from libs.bus.local_broker import LocalBroker
from libs.bus.port import Bus, TopicLayout
from libs.contracts.base import Topic
from libs.contracts.envelope import Envelope
from libs.runtime.clock import WallClock
from libs.runtime.shell import Options, Shell
from libs.runtime.stats import Phase
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
    shell = Shell(ADMISSION, own_bus, options=Options(batch_records=5))
    running = asyncio.create_task(shell.run(stop))
    await give(bus, 0, [node("n1", 4)])
    for number in range(2):
        await give(bus, 100 * (number + 1), [arrival(f"j{number}-{job}") for job in range(JOBS)])
        await until(lambda: decided(shell, 1))
        await kill_and_restart(broker)
    await until(lambda: decided(shell, 2 * JOBS), 200.0)
    assert shell.stats.phase is Phase.LIVE
    stop.set()
    await running
    await own_bus.close()
    envelopes = await log(bus, Topic.CONTROL)
    assert len({envelope.id for envelope in envelopes}) == len(envelopes) == 1 + 4 * JOBS


async def decided(shell: Shell, number: int) -> bool:
    """Whether so many decisions are committed, as long as the shell runs."""
    assert shell.stats.phase is not Phase.STOPPED
    return shell.stats.decisions >= number and shell.stats.commits > 0 and not shell.stats.log_away


async def test_faust_goes_on_after_the_broker_was_killed(broker: LocalBroker, bus: Bus):
    stop = asyncio.Event()
    shell = FaustWindows(f"kafka://{broker.bootstrap}", CELL, Rules(window_s=2.0, grace_s=0.0), WallClock())
    running = asyncio.create_task(shell.run(stop))
    await give(bus, 1000, [minibatches("j", 5 * second) for second in range(1, 6)])
    await until(lambda: windows(bus, 2), 60.0)
    await kill_and_restart(broker)
    await give(bus, 1005, [minibatches("j", 5 * second) for second in range(6, 11)])
    await until(lambda: windows(bus, 5), 120.0)
    stop.set()
    await running


async def windows(bus: Bus, number: int) -> bool:
    """Whether so many different windows are on profiles."""
    return len({envelope.id for envelope in await log(bus, Topic.PROFILES)}) >= number
