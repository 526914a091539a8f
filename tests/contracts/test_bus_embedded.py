"""The embedded adapter keeps the contract of the bus."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from libs.testing.bus_contract import BusContract
from libs.testing.shared_file import SharedFile


class TestEmbedded(BusContract):
    """The whole suite."""

    @pytest_asyncio.fixture
    async def log(self, tmp_path: Path) -> AsyncIterator[SharedFile]:
        """An empty log."""
        log = SharedFile(tmp_path)
        yield log
        await log.close()


class TestEmbeddedWhereNobodyCanRing(BusContract):
    """The suite again without wake-up sockets, as in a directory where none can be bound: readers look themselves."""

    @pytest_asyncio.fixture
    async def log(self, tmp_path: Path) -> AsyncIterator[SharedFile]:
        """An empty log beside something that is in the sockets' way."""
        log = SharedFile(tmp_path)
        log.sockets.write_text("in the way")
        yield log
        await log.close()
