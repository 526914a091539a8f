"""The memory adapter keeps the contract of the bus."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest_asyncio

from libs.bus.connect import connect
from libs.bus.memory import MemoryLog
from libs.bus.port import Bus
from libs.testing.bus_contract import BusContract, LogUnderTest

_numbers = itertools.count(1)


class SharedMemory(LogUnderTest):
    """A named log; its processes are tasks of this one."""

    def __init__(self) -> None:
        super().__init__()
        self._name = f"contract-{next(_numbers)}"
        self._kept = MemoryLog.named(self._name)

    async def _connect(self, cell: str) -> Bus:
        return await connect(f"memory:{self._name}", cell)

    async def _crash(self, bus: Bus) -> None:
        await bus.close()  # there is nothing in between: a commit either has not begun or is over


class TestMemory(BusContract):
    """The whole suite."""

    @pytest_asyncio.fixture
    async def log(self) -> AsyncIterator[SharedMemory]:
        """An empty log."""
        log = SharedMemory()
        yield log
        await log.close()


async def test_a_log_without_a_name_is_of_one_bus_alone() -> None:
    one, two = await connect("memory:", "lab"), await connect("memory:", "lab")
    assert one.log is not two.log  # type: ignore[attr-defined]
