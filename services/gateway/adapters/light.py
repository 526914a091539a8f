"""The operator's light, checked now and then."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field

import sqlalchemy as sa

from libs.runtime.log import fields
from libs.runtime.waits import within
from services.gateway.adapters import cluster_queries, job_queries
from services.gateway.adapters.database import Database, ReadModelsAway, position_of
from services.gateway.core.conservation import Counts, Law, check

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Light:
    """The result of one check."""

    color: str = "dark"
    """`green`, `red`, or `dark` before the first check."""
    offset: int | None = None
    checked_s: float | None = None
    laws: list[Law] = field(default_factory=list)


def look(connection: sa.Connection) -> Light:
    """Check the read models as of one position: all queries see the same moment."""
    before = position_of(connection)
    laws = check(
        job_queries.live(connection),
        cluster_queries.all_gpus(connection),
        cluster_queries.all_tenants(connection),
        _counts(connection),
        cluster_queries.all_nodes(connection),
        job_queries.asking(connection),
    )
    color = "green" if all(law.holds for law in laws) else "red"
    return Light(color, before - 1, time.time(), laws)


def _counts(connection: sa.Connection) -> Counts:
    arrived, ended = cluster_queries.arrivals_and_ends(connection)
    return Counts(arrived, ended, job_queries.count_by_state(connection))


class Lamp:
    """Shows the newest light.

    Args:
        database: the read models.
        every_s: time between two checks.
    """

    def __init__(self, database: Database, every_s: float) -> None:
        self._database, self._every_s = database, every_s
        self.light = Light()

    async def run(self, stop: asyncio.Event) -> None:
        """Check until told to stop. A violation is logged when it appears."""
        while not stop.is_set():
            await self.check()
            await within(stop, self._every_s)

    async def recent(self) -> Light:
        """The newest light; checked now when there is none of the last `every_s`."""
        checked_s = self.light.checked_s
        return self.light if checked_s is not None and time.time() - checked_s < self._every_s else await self.check()

    async def check(self) -> Light:
        """Check now; the last light stays when the read models cannot be reached."""
        try:
            light = await self._database.snapshot(look)
        except ReadModelsAway:
            return self.light
        if light.color == "red" and self.light.color != "red":
            broken = [violation for law in light.laws for violation in law.violations]
            log.error("conservation is violated", extra=fields(offset=light.offset, violations="; ".join(broken)))
        self.light = light
        return light
