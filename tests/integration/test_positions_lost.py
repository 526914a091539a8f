"""Sessions beside the cores' with forgotten positions: no fact comes twice, and no week is read again."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from libs.bus import codec
from libs.bus.connect import connect
from libs.bus.kafka.connection import Connection
from libs.bus.kafka.positions import committed, set_positions
from libs.bus.memory import MemoryBus
from libs.bus.partitioner import partition_index
from libs.bus.port import Bus, Partition, Position, TopicLayout
from libs.contracts.base import Event, Topic
from libs.contracts.envelope import Envelope
from libs.contracts.gateway import OWNER as GATEWAY
from libs.contracts.introspection import JobProfiled, WindowClosed
from libs.kernel.ids import request_id
from libs.runtime.clock import ManualClock, SteadyClock
from libs.runtime.listener import Listener
from libs.runtime.stats import Stats
from libs.testing.core_case import arrival
from libs.testing.forgetful import ForgetfulBus
from libs.testing.introspection import give, minibatches, placed
from libs.testing.shells import messages
from services.gateway.adapters.disks import Disks
from services.gateway.adapters.intake import Intake
from services.gateway.adapters.keys import Keys
from services.introspection.adapters.embedded_windows import EmbeddedWindows
from services.introspection.adapters.faust_windows import FaustWindows, group_of
from services.introspection.adapters.ingest import Ingest
from services.introspection.core.watching import WATCH
from services.introspection.core.windows import Rules, envelope

pytest_plugins = ("libs.testing.kafka",)
pytestmark = pytest.mark.usefixtures("dated_by_sources")

RULES = Rules(window_s=2.0, grace_s=1.0)
HOUR_S = 3600.0
WITHIN_S = 240.0
Run = Callable[[asyncio.Event], Coroutine[Any, Any, None]]


async def forgetful() -> ForgetfulBus:
    bus = ForgetfulBus(MemoryBus("t"))
    await bus.create_topics(TopicLayout())
    return bus


@asynccontextmanager
async def at_work(run: Run) -> AsyncIterator[Callable[[Callable[[], Awaitable[bool]]], Awaitable[None]]]:
    """Runs a shell; what it gives waits until a condition holds."""
    stop = asyncio.Event()
    running = asyncio.create_task(run(stop))

    async def until(reached: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not await reached():
                assert not running.done(), running.result()
                await asyncio.sleep(0.01)

    yield until
    stop.set()
    await running


async def events(bus: Bus, topic: Topic, cls: type[Event]) -> list[Any]:
    found = [codec.record(message).envelope.event for message in await messages(bus, topic)]
    return [event for event in found if isinstance(event, cls)]


def window(number: int) -> WindowClosed:
    """The two seconds of job `j` from 2 * number on."""
    return WindowClosed(
        job_id="j",
        attempt=1,
        window_start_s=2.0 * number,
        window_s=2.0,
        ranks=1,
        minibatches=10,
        minibatches_total=10 * number,
        rate_per_s=5.0,
        loss=None,
        memory_peak_bytes=0,
        memory_min_bytes=0,
    )


def ingest(bus: Bus) -> Run:
    clock, stats = ManualClock(), Stats("introspection")
    control = Listener(WATCH, bus, None, clock, stats, every_records=1000, every_s=1000.0)
    return Ingest(bus, control, clock, stats, interval_s=4.0, lost_after_s=1e9).run


async def test_ingest_reports_no_measured_time_twice_and_goes_on():
    bus = await forgetful()
    await give(bus, (0.0, placed("j")))
    await bus.append([codec.outgoing(envelope(window(number))) for number in range(1, 101)])

    async def reported(until_s: float) -> bool:
        found = await events(bus, Topic.CONTROL, JobProfiled)
        return bool(found) and found[-1].window_start_s + found[-1].window_s >= until_s

    async with at_work(ingest(bus)) as until:
        await until(lambda: reported(200.0))
    bus.forget()
    before = await events(bus, Topic.CONTROL, JobProfiled)
    async with at_work(ingest(bus)) as until:
        await bus.append([codec.outgoing(envelope(window(number))) for number in range(101, 103)])
        await until(lambda: reported(204.0))
    profiles = await events(bus, Topic.CONTROL, JobProfiled)
    assert len(profiles) == len(before) + 1
    assert sorted({profile.window_start_s for profile in profiles}) == [p.window_start_s for p in profiles]


async def test_embedded_windows_fold_what_is_recent_and_no_hour_again():
    bus = await forgetful()
    partition = Partition(Topic.TELEMETRY, partition_index("j", 8))
    await give(bus, *((float(second), minibatches("j", 5 * second)) for second in range(1, 1001)))

    async def closed(start_s: float) -> bool:
        return any(w.window_start_s >= start_s for w in await events(bus, Topic.PROFILES, WindowClosed))

    async with at_work(EmbeddedWindows(bus, RULES, ManualClock()).run) as until:
        await until(lambda: closed(996.0))
    before = len(await events(bus, Topic.PROFILES, WindowClosed))
    bus.forget()
    clock = ManualClock()
    async with at_work(EmbeddedWindows(bus, RULES, clock).run) as until:
        await give(bus, (1010.0, minibatches("j", 5050)))
        await until(lambda: closed(1000.0))
    again = (await events(bus, Topic.PROFILES, WindowClosed))[before:]
    assert again[0].window_start_s >= 1010.0 - 60.0 - RULES.window_s
    assert await bus.end_offset(partition) == 1001


async def test_the_gateway_knows_its_keys_without_a_position(tmp_path: Path):
    bus = await forgetful()
    key = request_id(GATEWAY, "key")
    request = Envelope(id=key, source=GATEWAY, time_s=1.0, event=arrival("j"))

    async def taken() -> bool:
        stop = asyncio.Event()
        intake = Intake(bus, Keys(f"sqlite:///{tmp_path}/gateway.db"), Disks(bus, tmp_path, 0), stop)
        running = asyncio.create_task(intake.run())
        while not intake.ready:
            assert not running.done(), running.result()
            await asyncio.sleep(0)
        answer = await intake.take(request)
        stop.set()
        await running
        return answer.repeated

    assert await taken() is False
    bus.forget()
    assert await taken() is True
    assert len(await messages(bus.bus, Topic.CONTROL)) == 1


async def date_by_producers(bootstrap: str, topic: str) -> None:
    """Have producers date the records of a topic: what took hours to write is written in a moment."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    by_producer = {"message.timestamp.type": "CreateTime"}
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, by_producer)])
    await admin.close()


async def old_and_recent_telemetry(bootstrap: str, cell: str, old: int, recent: int) -> None:
    """Seconds of job `j`, appended when they were measured: an hour ago, and just now."""
    await date_by_producers(bootstrap, f"{cell}.telemetry")
    now_s = int(time.time())
    starts = [*range(now_s - int(HOUR_S), now_s - int(HOUR_S) + old), *range(now_s - recent, now_s)]
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    for number, time_s in enumerate(starts):
        event = minibatches("j", 5 * number + 5)
        record = codec.outgoing(
            Envelope(id=request_id(cell, str(number)), source="t", time_s=float(time_s), event=event)
        )
        await producer.send(
            f"{cell}.telemetry",
            value=record.value,
            key=record.key.encode(),
            headers=record.headers,
            partition=partition_index("j", 8),
            timestamp_ms=time_s * 1000,
        )
    await producer.stop()


async def test_faust_folds_what_is_recent_when_the_group_has_no_position(kafka_bootstrap: str):
    cell, url = f"lost-{uuid.uuid4().hex[:8]}", f"kafka://{kafka_bootstrap}"
    bus = await connect(url, cell)
    await bus.create_topics(TopicLayout())
    await old_and_recent_telemetry(kafka_bootstrap, cell, old=200, recent=20)
    hour_ago_s = time.time() - HOUR_S / 2

    async def closed() -> bool:
        return len(await events(bus, Topic.PROFILES, WindowClosed)) >= 8

    async with at_work(FaustWindows(url, cell, RULES, SteadyClock()).run) as until:
        await until(closed)
    windows = await events(bus, Topic.PROFILES, WindowClosed)
    await bus.close()
    assert min(window.window_start_s for window in windows) > hour_ago_s


async def test_a_group_with_members_keeps_its_positions(kafka_bootstrap: str):
    """Another instance that starts meanwhile sets nothing."""
    cell, url = f"lost-{uuid.uuid4().hex[:8]}", f"kafka://{kafka_bootstrap}"
    bus = await connect(url, cell)
    await bus.create_topics(TopicLayout())
    connection, group = Connection.parse(url), group_of(cell)
    place = TopicPartition(f"{cell}.telemetry", partition_index("j", 8))
    assert await set_positions(connection, group, {place: 3})
    assert await committed(connection, group, place) == Position(3)
    await old_and_recent_telemetry(kafka_bootstrap, cell, old=0, recent=20)

    async def closed() -> bool:
        return len(await events(bus, Topic.PROFILES, WindowClosed)) >= 5

    async with at_work(FaustWindows(url, cell, RULES, SteadyClock()).run) as until:
        await until(closed)
        assert not await set_positions(connection, group, {place: 0})
    assert (await committed(connection, group, place)).next_offset > 3
    await bus.close()
