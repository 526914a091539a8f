"""Sessions inside jobs that have ended with a gateway: the next one says so on the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import sqlalchemy as sa

from libs.bus.port import Bus, BusError
from libs.contracts.gateway import JobSessionClosed, JobSessionOpened
from libs.runtime.log import fields
from services.gateway.adapters.database import Database, ReadModelsAway, TooFarBehind
from services.gateway.adapters.intake import CONTROL, KeyReused, NotTaken, OutcomeInDoubt
from services.gateway.adapters.tables import event_counts, events

log = logging.getLogger(__name__)

ENDED_WITH_IT = "the gateway through which it went has ended"
RETRY_S, BEHIND_S = 1.0, 30.0
_OPENED, _CLOSED = JobSessionOpened.wire_type, JobSessionClosed.wire_type

Close = Callable[[JobSessionClosed], Awaitable[object]]


class LeftOpen:
    """Which sessions are open here; all others that are open on the log have ended with the gateway that had them.

    Args:
        bus: the cell's log.
        database: the read models.
        close: puts the end of a session on the log.
    """

    def __init__(self, bus: Bus, database: Database, close: Close) -> None:
        self._bus, self._database, self._close = bus, database, close
        self.here: set[str] = set()
        """Ids of sessions of this gateway, from before they are on the log."""
        self._look = asyncio.Event()
        self._look.set()

    def ended(self, session_id: str, *, is_said: bool) -> None:
        """A session of this gateway is over; where that has not got onto the log it is said later."""
        self.here.discard(session_id)
        if not is_said:
            self._look.set()

    async def run(self) -> None:
        """Close what is left open, at the start and whenever an end has not got onto the log; until cancelled."""
        while True:
            await self._look.wait()
            self._look.clear()
            try:
                await self._close_all()
            except (BusError, NotTaken, OutcomeInDoubt, ReadModelsAway, TooFarBehind) as error:
                log.info("sessions that were left open are closed later", extra=fields(error=error))
                self._look.set()
                await asyncio.sleep(RETRY_S)

    async def _close_all(self) -> None:
        await self._database.wait_for(await self._bus.end_offset(CONTROL), BEHIND_S)
        for session_id, job_id in (await self._database.read(_open_ones)).items():
            if session_id not in self.here:
                try:
                    await self._close(JobSessionClosed(job_id=job_id, session_id=session_id, note=ENDED_WITH_IT))
                except KeyReused:  # its own end got onto the log after all
                    continue


def _open_ones(connection: sa.Connection) -> dict[str, str]:
    """{session: job} of those that are not closed on the log."""
    counts = sa.select(event_counts.c.type, sa.func.sum(event_counts.c.events)).group_by(event_counts.c.type)
    known = {row[0]: row[1] for row in connection.execute(counts.where(event_counts.c.type.in_([_OPENED, _CLOSED])))}
    if known.get(_OPENED, 0) == known.get(_CLOSED, 0):
        return {}
    said = sa.select(events.c.type, events.c.data).where(events.c.type.in_([_OPENED, _CLOSED]))
    found = [(row[0], row[1]) for row in connection.execute(said.order_by(events.c.log_offset))]
    closed = {data["session_id"] for kind, data in found if kind == _CLOSED}
    return {
        data["session_id"]: data["job_id"]
        for kind, data in found
        if kind == _OPENED and data["session_id"] not in closed
    }
