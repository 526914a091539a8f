"""What users are told with their submissions, looked up once for many of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import sqlalchemy as sa

from libs.contracts.jobs import JobSpec
from services.gateway.adapters import failure_queries
from services.gateway.adapters.database import Database, ReadModelsAway

KNOWN_S = 0.1
"""How long an answer is given again. The read models themselves are as far behind the log."""


class Notices:
    """Warnings by user and inputs.

    Args:
        database: the read models.
        now: seconds since the epoch.
    """

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._database, self._now = database, now
        self._asked: dict[tuple[str, ...], asyncio.Task[list[str]]] = {}
        self._since_s = 0.0

    async def of(self, spec: JobSpec) -> list[str]:
        """What speaks against the job's success; nothing where the read models are away, for which none waits."""
        if time.monotonic() - self._since_s > KNOWN_S:
            self._asked, self._since_s = {}, time.monotonic()
        key = (spec.user, *spec.data)
        if key not in self._asked:
            self._asked[key] = asyncio.create_task(self._look(spec))
        return await asyncio.shield(self._asked[key])

    async def _look(self, spec: JobSpec) -> list[str]:
        def query(connection: sa.Connection) -> list[str]:
            return failure_queries.warnings(connection, spec, self._now())

        try:
            return await self._database.read(query)
        except ReadModelsAway:
            return []
