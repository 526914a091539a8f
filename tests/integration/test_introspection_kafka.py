"""Introspection on a real Kafka: the Faust shell folds as the embedded one does."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import KafkaError

from libs.bus import codec
from libs.bus.connect import connect
from libs.bus.port import Bus, Outgoing, TopicLayout
from libs.contracts.base import Event, Topic
from libs.contracts.envelope import whole_microseconds
from libs.contracts.introspection import JobProfiled
from libs.runtime.clock import SteadyClock
from libs.testing.core_case import node
from libs.testing.introspection import give, minibatches, placed
from libs.testing.processes import Processes
from libs.testing.shells import messages
from services.introspection.adapters.embedded_windows import EmbeddedWindows
from services.introspection.adapters.faust_windows import FaustWindows, Life
from services.introspection.core.windows import Rules

pytest_plugins = ("libs.testing.kafka",)

JOBS = [f"j{number}" for number in range(6)]
RULES = Rules(window_s=2.0, grace_s=1.0)
Window = tuple[str, bytes]

pytestmark = pytest.mark.usefixtures("dated_by_sources")


@pytest.fixture
def cell() -> str:
    return f"faust-{uuid.uuid4().hex[:8]}"


@pytest.fixture
async def kafka(kafka_bootstrap: str, cell: str) -> AsyncIterator[Bus]:
    bus = await connect(f"kafka://{kafka_bootstrap}", cell)
    await bus.create_topics(TopicLayout())
    yield bus
    await bus.close()


@pytest.fixture
async def memory(cell: str) -> AsyncIterator[Bus]:
    bus = await connect("memory:", cell)
    await bus.create_topics(TopicLayout())
    yield bus
    await bus.close()


def seconds(first: int, last: int) -> list[tuple[float, Event]]:
    """Every job reports once a second."""
    return [(1000.1 + second, minibatches(job, second * 5)) for second in range(first, last) for job in JOBS]


async def windows(bus: Bus) -> dict[Window, int]:
    """{(id, data): how often} of the windows on profiles."""
    found: dict[Window, int] = {}
    for message in await messages(bus, Topic.PROFILES):
        window = (codec.record(message).envelope.id, message.value)
        found[window] = found.get(window, 0) + 1
    return found


async def run_until(run: Callable[[asyncio.Event], Awaitable[None]], reached: Callable[[], Awaitable[bool]]) -> None:
    stop = asyncio.Event()
    running = asyncio.ensure_future(run(stop))
    async with asyncio.timeout(240):
        while not await reached():
            assert not running.done(), await running
            await asyncio.sleep(0.1)
    stop.set()
    await running


async def embedded_windows(memory: Bus, *facts: tuple[float, Event]) -> dict[Window, int]:
    await give(memory, *facts)

    async def all_closed() -> bool:
        found = await memory.partitions(Topic.PROFILES)
        return sum([await memory.end_offset(partition) for partition in found]) == 6 * len(JOBS)

    await run_until(EmbeddedWindows(memory, RULES, SteadyClock()).run, all_closed)
    return await windows(memory)


async def test_both_shells_close_identical_windows(kafka: Bus, memory: Bus, kafka_bootstrap: str, cell: str):
    expected = await embedded_windows(memory, *seconds(1, 12))
    assert len(expected) == 6 * len(JOBS)
    await give(kafka, *seconds(1, 12))
    shell = FaustWindows(f"kafka://{kafka_bootstrap}", cell, RULES, SteadyClock())

    async def same() -> bool:
        return await windows(kafka) == expected

    await run_until(shell.run, same)


async def test_a_restarted_shell_builds_the_open_windows_again(
    kafka: Bus, memory: Bus, kafka_bootstrap: str, cell: str
):
    expected = await embedded_windows(memory, *seconds(1, 12))
    shell = FaustWindows(f"kafka://{kafka_bootstrap}", cell, Rules(window_s=2.0, grace_s=1000.0), SteadyClock())
    await give(kafka, *seconds(1, 7))
    running = asyncio.create_task(run_until(shell.run, lambda: asyncio.sleep(3, True)))
    await running  # has read everything and closed nothing
    assert await windows(kafka) == {}
    await give(kafka, *seconds(7, 12))
    shell = FaustWindows(f"kafka://{kafka_bootstrap}", cell, RULES, SteadyClock())

    async def all_there() -> bool:
        return set(await windows(kafka)) == set(expected)

    await run_until(shell.run, all_there)


async def test_windows_that_could_not_be_appended_are_folded_again(
    kafka: Bus, memory: Bus, kafka_bootstrap: str, cell: str, monkeypatch: pytest.MonkeyPatch
):
    expected = await embedded_windows(memory, *seconds(1, 12))
    await give(kafka, *seconds(1, 12))
    send, failures = Life._send, [3, 7]

    async def failing(self: Life, output: Outgoing) -> object:
        failures[:] = [left - 1 for left in failures]
        if 0 in failures:
            raise KafkaError("not accepted (injected)")
        return await send(self, output)

    monkeypatch.setattr(Life, "_send", failing)

    async def all_there() -> bool:
        return set(await windows(kafka)) == set(expected)

    await run_until(FaustWindows(f"kafka://{kafka_bootstrap}", cell, RULES, SteadyClock()).run, all_there)
    assert failures[-1] < 0


async def test_a_consumer_that_has_left_its_group_for_good_is_started_anew(
    kafka: Bus, memory: Bus, kafka_bootstrap: str, cell: str, monkeypatch: pytest.MonkeyPatch
):
    expected = await embedded_windows(memory, *seconds(1, 12))
    await give(kafka, *seconds(1, 12))
    routine, broken = GroupCoordinator.ensure_active_group, []

    async def breaks_once(self: GroupCoordinator, *how: Any) -> object:
        if not broken:
            broken.append(self)
            raise AssertionError("did we not perform bootstrap? (injected)")
        return await routine(self, *how)

    monkeypatch.setattr(GroupCoordinator, "ensure_active_group", breaks_once)

    async def all_there() -> bool:
        return set(await windows(kafka)) == set(expected)

    await run_until(FaustWindows(f"kafka://{kafka_bootstrap}", cell, RULES, SteadyClock()).run, all_there)
    assert broken


async def test_a_bad_record_goes_to_the_dead_letters_and_the_rest_goes_on(kafka: Bus, kafka_bootstrap: str, cell: str):
    bad = Outgoing(Topic.TELEMETRY, "j0", [("ce_type", b"minibatch.profiled.v1")], b"\xff")
    await kafka.append([bad])
    await give(kafka, *seconds(1, 12))
    shell = FaustWindows(f"kafka://{kafka_bootstrap}", cell, RULES, SteadyClock())

    async def all_there() -> bool:
        return len(await windows(kafka)) == 6 * len(JOBS)

    await run_until(shell.run, all_there)
    [dead] = await messages(kafka, Topic.DEADLETTER)
    headers = dict(dead.headers)
    assert (dead.key, dead.value, headers["x-topic"]) == ("j0", b"\xff", b"telemetry")


@pytest.fixture
async def processes() -> AsyncIterator[Processes]:
    processes = Processes({})
    yield processes
    await processes.kill_all()


async def test_the_process_measures_a_running_job(
    kafka: Bus, processes: Processes, kafka_bootstrap: str, cell: str, tmp_path: Path
):
    environment = {
        "SANJAYA_BUS": f"kafka://{kafka_bootstrap}",
        "SANJAYA_CELL": cell,
        "SANJAYA_STATE_DIR": str(tmp_path),
        "SANJAYA_WINDOW_S": "0.5",
        "SANJAYA_WINDOW_GRACE_S": "0.2",
        "SANJAYA_PROFILE_INTERVAL_S": "1",
    }
    await give(kafka, (0.0, node("n1", 1)), (0.0, placed("j")))
    process = await processes.start("services.introspection", **environment)
    said = asyncio.create_task(process.communicate())
    profiles: list[JobProfiled] = []
    total = 0
    async with asyncio.timeout(240):
        while len(profiles) < 3:
            assert not said.done(), (await said)[1]
            total += 5
            await give(kafka, (whole_microseconds(time.time()), minibatches("j", total)))
            facts = [codec.record(message).envelope.event for message in await messages(kafka, Topic.CONTROL)]
            profiles = [fact for fact in facts if isinstance(fact, JobProfiled)]
            await asyncio.sleep(0.1)
    process.terminate()
    _, text = await said
    assert process.returncode == 0, text
    assert [p.minibatches_total for p in profiles] == sorted({p.minibatches_total for p in profiles})
