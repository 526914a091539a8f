"""What every process of a cell does around its work: settings, signals, the bus, an exit code."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from pydantic import ValidationError

from libs.bus.connect import connect
from libs.bus.port import Bus, BusError, Fenced, TopicLayout
from libs.runtime import exits, log
from libs.runtime.disk_room import lacks_room
from libs.runtime.exits import CoreFailed, StopRequested
from libs.runtime.log import fields
from libs.runtime.patience import Patience
from libs.runtime.settings import Settings

logger = logging.getLogger(__name__)

S = TypeVar("S", bound=Settings)

Work = Callable[[asyncio.Event], Awaitable[None]]


def read_settings(cls: type[S] = Settings) -> S:  # type: ignore[assignment]
    """The settings of this process; exits with code 78 and a sentence per wrong one.

    Args:
        cls: the settings class, for a process that has some of its own.
    """
    try:
        return cls()
    except ValidationError as error:
        for wrong in error.errors():
            name = "_".join(str(part) for part in wrong["loc"])
            print(f"error: setting {name or 'SANJAYA_*'}: {wrong['msg']}", file=sys.stderr)
        sys.exit(exits.CONFIG)


def run(work: Work, service: str, settings: Settings) -> int:
    """Run `work` until it ends or SIGTERM or SIGINT comes; returns the process's exit code."""
    log.setup(service, settings.log_level)
    try:
        return asyncio.run(_run(work))
    except Exception as error:
        if not lacks_room(error, settings.state_dir):
            raise
        logger.critical("a disk has no room", extra=fields(error=error))
        return exits.NO_ROOM


async def _run(work: Work) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        await work(stop)
    except StopRequested:
        return exits.OK
    except CoreFailed as error:
        logger.critical("stopped at a record that cannot be taken; nothing is skipped", extra=fields(error=error))
        return exits.CORE_FAILED
    except Fenced as error:
        logger.critical("a newer instance has taken over: this one ends", extra=fields(error=error))
        return exits.FENCED
    except BusError as error:
        logger.critical("the log refuses", extra=fields(error=error))
        return exits.CORE_FAILED
    return exits.OK


@asynccontextmanager
async def cell_bus(settings: Settings, stop: asyncio.Event) -> AsyncIterator[Bus]:
    """The cell's bus with its topics in place; waits while the log cannot be reached.

    Raises:
        StopRequested: asked to stop while waiting.
    """
    patience = Patience(stop)
    bus = await patience.outlast(lambda: connect(settings.bus, settings.cell), "connect")
    try:
        await patience.outlast(lambda: bus.create_topics(TopicLayout()), "create topics")
        yield bus
    finally:
        await bus.close()
