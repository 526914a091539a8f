"""Waiting for a log that is away for a while."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from libs.bus.port import BusUnavailable
from libs.runtime.exits import StopRequested
from libs.runtime.log import fields
from libs.runtime.waits import within

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 5.0


class Patience:
    """Back-off between attempts: 0.1 s, doubling up to 5 s, cut short by a stop."""

    def __init__(self, stop: asyncio.Event, first_s: float = FIRST_WAIT_S, longest_s: float = LONGEST_WAIT_S) -> None:
        self._stop = stop
        self._first_s, self._longest_s = first_s, longest_s
        self._wait_s = first_s
        self.waiting = False
        """The log is away now."""
        self.waits = 0
        """How often it was found away."""

    async def outlast(self, call: Callable[[], Awaitable[T]], what: str) -> T:
        """Do `call`, again and again while the log cannot be reached. `call` must be safe to repeat.

        Raises:
            StopRequested: the process was asked to stop meanwhile.
            BusError: anything else that the log says.
        """
        while True:
            try:
                result = await call()
            except BusUnavailable as error:
                await self.wait(what, error)
            else:
                self.over()
                return result

    async def wait(self, what: str, error: BusUnavailable) -> None:
        """Log the trouble and let the back-off pass.

        Raises:
            StopRequested: the process was asked to stop meanwhile.
        """
        log.warning("the log cannot be reached", extra=fields(doing=what, error=error, retry_in_s=self._wait_s))
        self.waiting = True
        self.waits += 1
        if await within(self._stop, self._wait_s):
            raise StopRequested(what)
        self._wait_s = min(self._wait_s * 2, self._longest_s)

    def over(self) -> None:
        """The log answers again."""
        if self.waiting:
            log.info("the log is back")
        self.waiting = False
        self._wait_s = self._first_s
