"""aiokafka's errors in the port's words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka.errors import (
    InvalidProducerEpoch,
    KafkaError,
    ProducerFenced,
)

from libs.bus.port import BusError, BusUnavailable, Fenced

FENCED = (ProducerFenced, InvalidProducerEpoch)
UNREACHABLE = (KafkaError, OSError, TimeoutError, asyncio.TimeoutError)


@asynccontextmanager
async def reaching_kafka(what: str) -> AsyncIterator[None]:
    """Translate whatever goes wrong while nothing can have been appended.

    Raises:
        Fenced: a newer session has taken over.
        BusUnavailable: everything else; the message says what was tried.
    """
    try:
        yield
    except BusError:
        raise
    except FENCED as error:
        raise Fenced(f"{what}: a newer session has taken over ({error!r})") from error
    except UNREACHABLE as error:
        raise BusUnavailable(f"cannot {what}: {error!r}") from error
