"""The Kafka adapter keeps the contract of the bus."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest_asyncio
from hypothesis import given, settings

from libs.bus.kafka import KafkaBus
from libs.bus.kafka.connection import Connection
from libs.bus.kafka.reader import KafkaReader
from libs.bus.kafka.session import KafkaSession
from libs.bus.port import Bus, Partition
from libs.testing.bus_contract import BusContract, LogUnderTest
from libs.testing.bus_contract.interleavings import STEPS, UNHURRIED, Step, follow

pytest_plugins = ("libs.testing.kafka",)


class MortalBus(KafkaBus):
    """Knows what would die with its process."""

    def __init__(self, connection: Connection, cell: str) -> None:
        super().__init__(connection, cell)
        self._sessions: list[KafkaSession] = []
        self._readers: list[KafkaReader] = []

    async def open_session(self, name: str) -> KafkaSession:
        """As ever."""
        self._sessions.append(await super().open_session(name))
        return self._sessions[-1]

    async def reader(self, starts: Mapping[Partition, int]) -> KafkaReader:
        """As ever."""
        self._readers.append(await super().reader(starts))
        return self._readers[-1]

    async def die(self) -> None:
        """Stop all that goes on in the clients, finish nothing, and let the connections break."""
        for session in self._sessions:
            producer: Any = session._producer
            producer._closed = True
            await producer._sender.close()
            await producer.client.close()
        for reader in self._readers:
            await reader.close()
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

    @settings(UNHURRIED, max_examples=5)
    @given(steps=STEPS)
    async def test_any_interleaving_is_as_the_model_has_it(self, log: LogUnderTest, steps: list[Step]) -> None:
        """Fewer examples: topics are made and sessions opened in each."""
        await follow(log, steps)
