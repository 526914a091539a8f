"""Takes the device memory of tasks' processes off the GPU and brings it back, in threads of their own."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from libs.node.seen import ByDriver, OnDevice
from torch_agent.driver.interface import Driver, DriverFailed, State

log = logging.getLogger(__name__)


@dataclass
class _Operation:
    work: asyncio.Task[None]
    began_s: float
    took_s: float = 0.0
    failed: bool = False


class Operations:
    """Of all tasks of the node. What the driver says of a process counts: an agent goes on where one was killed."""

    def __init__(self, driver: Driver, changed: Callable[[], None]) -> None:
        """See `take_off` and `bring_back`.

        Args:
            changed: called when an operation has ended.
        """
        self._driver, self._changed = driver, changed
        self._operations: dict[str, _Operation] = {}

    def take_off(self, key: str, pids: Sequence[int]) -> None:
        """Begin, unless that is being done."""
        self._begin(key, pids, taking_off=True)

    def bring_back(self, key: str, pids: Sequence[int]) -> None:
        """Begin, unless that is being done."""
        self._begin(key, pids, taking_off=False)

    def forget(self, key: str) -> None:
        """The task has ended."""
        self._operations.pop(key, None)

    def seen(self, key: str, pids: Callable[[], Sequence[int]]) -> ByDriver:
        """Where the memory of the task's processes is; asks for them only when nothing is under way."""
        operation = self._operations.get(key)
        if operation is None:
            return ByDriver(memory=self._memory(pids()))
        if not operation.work.done():
            return ByDriver(memory=OnDevice.MOVING)
        memory = OnDevice.STUCK if operation.failed else self._memory(pids())
        return ByDriver(memory=memory, took_s=operation.took_s)

    def _memory(self, pids: Sequence[int]) -> OnDevice:
        states = {state for pid in pids if (state := self._driver.state(pid)) is not None}
        if not states:
            return OnDevice.NONE
        if State.FAILED in states:
            return OnDevice.STUCK
        if states == {State.RUNNING}:
            return OnDevice.YES
        return OnDevice.NO if states == {State.CHECKPOINTED} else OnDevice.PARTLY

    def _begin(self, key: str, pids: Sequence[int], *, taking_off: bool) -> None:
        before = self._operations.get(key)
        if before is not None and not before.work.done():
            return
        work = asyncio.create_task(self._run(key, list(pids), taking_off=taking_off))
        self._operations[key] = _Operation(work, time.monotonic())

    async def _run(self, key: str, pids: list[int], *, taking_off: bool) -> None:
        operation = self._operations[key]
        failed = await self._each(self._driver.take_off if taking_off else self._driver.bring_back, pids)
        if failed and taking_off:
            failed += await self._each(self._driver.bring_back, pids)
        for error in failed:
            log.warning("%s: %s", key, error)
        operation.failed, operation.took_s = bool(failed), time.monotonic() - operation.began_s
        self._changed()

    async def _each(self, operate: Callable[[int], None], pids: list[int]) -> list[DriverFailed]:
        """All at once. Returns what has failed."""
        ends = await asyncio.gather(*(asyncio.to_thread(operate, pid) for pid in pids), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException) and not isinstance(end, DriverFailed):
                raise end
        return [end for end in ends if isinstance(end, DriverFailed)]
