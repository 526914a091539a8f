"""The Kafka adapter keeps the contract of the bus."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from hypothesis import given, settings

from libs.bus.kafka import KafkaBus
from libs.bus.kafka.session import KafkaSession
from libs.bus.port import Bus, OffsetLost, Partition
from libs.contracts.base import Topic
from libs.testing.bus_contract import BusContract, LogUnderTest
from libs.testing.bus_contract.interleavings import ANYWHERE, STEPS, Step, follow
from libs.testing.bus_contract.log import take, text, texts
from libs.testing.effort import searching

pytest_plugins = ("libs.testing.kafka",)

PROFILES = Partition(Topic.PROFILES, 0)


class MortalBus(KafkaBus):
    """Can die."""

    async def die(self) -> None:
        """Stop all that goes on in the clients, finish nothing, and let the connections break."""
        for session in [opened for opened in self._opened if isinstance(opened, KafkaSession)]:
            self._opened.remove(session)
            producer: Any = session._producer
            producer._closed = True
            await producer._sender.close()
            await producer.client.close()
        await self.close()


class SharedBroker(LogUnderTest):
    """Cells of its own on a broker that other tests use too."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._bootstrap = bootstrap
        self._prefix = f"t{time.time_ns()}"

    async def _connect(self, cell: str) -> Bus:
        return await MortalBus.connect(f"kafka://{self._bootstrap}", f"{self._prefix}-{cell}")

    async def _crash(self, bus: Bus) -> None:
        assert isinstance(bus, MortalBus)
        await bus.die()


class TestKafka(BusContract):
    """The whole suite."""

    @pytest_asyncio.fixture
    async def log(self, kafka_bootstrap: str) -> AsyncIterator[SharedBroker]:
        """An empty log."""
        log = SharedBroker(kafka_bootstrap)
        yield log
        await log.close()

    @settings(searching(by_default=2, thorough=20), suppress_health_check=ANYWHERE)
    @given(steps=STEPS)
    async def test_any_interleaving_is_as_the_model_has_it(self, log: LogUnderTest, steps: list[Step]) -> None:
        """Fewer examples: topics are made and sessions opened in each."""
        await follow(log, steps)


async def test_what_retention_has_deleted_is_said_and_the_rest_can_be_read(kafka_bootstrap: str) -> None:
    log = SharedBroker(kafka_bootstrap)
    bus = await log.connect()
    await bus.append([text(Topic.PROFILES, "k", str(number)) for number in range(5)])
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    await admin.start()
    await admin.delete_records({TopicPartition(f"{bus.cell}.profiles", 0): RecordsToDelete(3)})
    await admin.close()
    lost = await bus.reader({PROFILES: 1})
    with pytest.raises(OffsetLost, match="begins at 3, asked for 1"):
        await lost.next_batch(5, 10.0)
    assert texts(await take(bus, {PROFILES: 0}, 2)) == ["3", "4"]
    await log.close()


async def test_a_reader_that_has_looked_up_an_end_does_not_go_on_reading(kafka_bootstrap: str) -> None:
    log = SharedBroker(kafka_bootstrap)
    bus = await log.connect()
    await bus.append([text(Topic.PROFILES, "k", "0")])
    assert await bus.end_offset(PROFILES) == 1
    assert isinstance(bus, KafkaBus) and bus._ends is not None
    looking = bus._ends._committed
    assert looking.paused() == looking.assignment() != set()
    assert await bus.end_offset(PROFILES) == 1  # and can look again
    await log.close()
