"""The adapter over HTTP keeps the contract of the bus, with an embedded log behind a gateway.

What is an operator's, and no agent's (making topics, removing old records), is done on the log itself; agents see what
comes of it. What a token may read and append has tests of its own: here the gateway lets every session write all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest_asyncio

from libs.bus.embedded import EmbeddedBus
from libs.bus.http.bus import HttpBus
from libs.bus.port import Archived, Bus, Partition, TopicLayout
from libs.contracts import wire
from libs.contracts.base import Topic
from libs.testing.bus_contract import BusContract, LogUnderTest
from libs.testing.served import served
from services.gateway.adapters.agents_bus import AgentsBus
from services.gateway.app import create_app
from services.gateway.core.ownership import Ownership
from services.gateway.door import Gateway
from tests.integration.gateway_cell import settings


class Everything(Ownership):
    """All records and all sessions are the caller's."""

    def __init__(self) -> None:
        super().__init__(lambda node_id: True, "the test")

    def require_session(self, name: str) -> None:
        """All are."""

    def require_own(
        self, topic: Topic, key: str, headers: wire.Headers, value: bytes, session: str | None = None
    ) -> None:
        """All are."""

    def sees(self, topic: Topic, key: str, headers: wire.Headers) -> bool:
        """All are."""
        return True


class JoinedBus(HttpBus):
    """With the log itself at hand for what is an operator's."""

    behind: EmbeddedBus

    async def create_topics(self, layout: TopicLayout) -> None:
        """On the log itself."""
        await self.behind.create_topics(layout)

    async def give_back(self, befores: Mapping[Partition, int], archived: Archived) -> None:
        """On the log itself."""
        await self.behind.give_back(befores, archived)


class BehindGateways(LogUnderTest):
    """A file; each cell has a gateway on a socket, with which each connection has connections of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._gateways: dict[str, tuple[str, EmbeddedBus]] = {}
        self._closing = AsyncExitStack()

    async def _connect(self, cell: str) -> Bus:
        if cell not in self._gateways:
            self._gateways[cell] = await self._gateway(cell)
        url, behind = self._gateways[cell]
        bus = await JoinedBus.connect(url, cell)
        bus.behind = behind
        return bus

    async def _gateway(self, cell: str) -> tuple[str, EmbeddedBus]:
        bus = await EmbeddedBus.connect(f"sqlite:///{self._folder / 'log.db'}", cell)
        self._closing.push_async_callback(bus.close)
        gateway = Gateway(settings(self._folder / cell, cell=cell), bus)
        gateway.agents_bus = AgentsBus(bus, gateway.stop, lambda caller: Everything())
        url = await self._closing.enter_async_context(served(create_app(gateway)))
        return url, bus

    async def _crash(self, bus: Bus) -> None:
        await bus.close()  # the connections break off; the gateway is told nothing

    async def close(self) -> None:
        """The connections, then the gateways."""
        await super().close()
        await self._closing.aclose()


class TestHttp(BusContract):
    """The whole suite."""

    @pytest_asyncio.fixture
    async def log(self, tmp_path: Path) -> AsyncIterator[BehindGateways]:
        """An empty log."""
        log = BehindGateways(tmp_path)
        yield log
        await log.close()
