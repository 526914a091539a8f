"""The cores as the log has them, kept beside the read models to ask what would start a job that waits.

Nothing is followed until the first question: a gateway that is never asked pays nothing. From then on the states are
kept up to date record by record, and once a minute the start of one waiting job is foreseen, so that it is known how
far such expectations are off.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from libs.bus.naming import CONTROL, log_id
from libs.bus.port import Bus, BusUnavailable
from libs.contracts.base import Topic
from libs.contracts.catalogue import TERMINAL
from libs.contracts.placement import JobPlaced
from libs.forecast.answer import Forecast, forecast
from libs.forecast.branch import CORES
from libs.forecast.errors import Track
from libs.forecast.expected import expected_start
from libs.forecast.following import Followed
from libs.inspect.extent import Extent, survey
from libs.inspect.rules import rules_of
from libs.kernel.replica import Replica, pass_over
from libs.runtime.log import fields
from libs.runtime.recovery import from_snapshot
from libs.runtime.roster import roster
from libs.runtime.snapshots import Snapshots
from services.gateway.adapters.feed import Entry, Feed

log = logging.getLogger(__name__)

SAMPLE_S = 60.0
"""How often a start is foreseen unasked."""
HEARTBEAT_S = 5.0
T = TypeVar("T")


class NotFollowed(Exception):
    """The states are not up to date yet; the message says how far they are."""


class Cores:
    """Foresees starts.

    Args:
        bus: the cell's log.
        feed: its live end.
        database: where snapshots of the cores are; SQLAlchemy URL.
        now: seconds since the epoch.
        limit_s: of CPU time: an answer is given by then, with what was found so far.
    """

    def __init__(self, bus: Bus, feed: Feed, database: str, now: Callable[[], float], limit_s: float) -> None:
        self._limit_s = limit_s
        self._bus, self._feed, self._database, self._now = bus, feed, database, now
        self._asked, self._moved = asyncio.Event(), asyncio.Condition()
        self._lock = asyncio.Lock()
        self._followed: Followed | None = None
        self._track = Track()
        self._sampled_s, self._samples = 0.0, 0
        self._extent: Extent | None = None
        """How far the services were; None: that is taken into account."""
        self._broken = ""

    async def run(self) -> None:
        """Follow control from the first question on, until told to stop. What goes wrong ends this, and no more."""
        await self._asked.wait()
        try:
            await self._follow()
        except Exception as error:
            self._broken = repr(error)
            log.exception("what would start jobs is not known until the gateway is started anew")

    async def _follow(self) -> None:
        await self._feed.started.wait()
        followed = self._followed = Followed(await self._restored())
        self._sampled_s = self._now()
        async for batch in self._feed.follow(followed.next_offset, HEARTBEAT_S):
            await self._alone(partial(self._take, followed, batch))
            async with self._moved:
                self._moved.notify_all()
            if self._now() - self._sampled_s >= SAMPLE_S and self.reached >= self._feed.next_offset:
                self._sampled_s = self._now()
                await self._settle(followed)
                await self._alone(partial(self._sample, followed))

    async def _restored(self) -> dict[str, Replica[Any]]:
        """Each core as of its newest snapshot, or empty: then the whole log is folded."""
        services = await asyncio.to_thread(lambda: [each for each in roster().SERVICES if each.name in CORES])
        end, name = await self._bus.end_offset(CONTROL), await log_id(self._bus)
        snapshots: Snapshots | None = None
        try:
            snapshots = await asyncio.to_thread(Snapshots, self._database, self._bus.cell)
        except SQLAlchemyError as error:
            log.warning("snapshots cannot be read: the log is folded from its beginning", extra=fields(error=error))
        found: dict[str, Replica[Any]] = {}
        for service in services:
            rules = await asyncio.to_thread(rules_of, f"services.{service.name}.service")
            replica = found[service.name] = await from_snapshot(service, snapshots, rules, name, end)
            replica.on_impossible = pass_over
        return found

    async def forecast(self, job_id: str, at_least_offset: int, patience_s: float) -> Forecast:
        """What would start the job, and when it is expected to start.

        Args:
            at_least_offset: records before it are taken into account.
            patience_s: how long it is waited for.

        Raises:
            NotFollowed: they could not be, in that time.
        """
        self._asked.set()
        try:
            async with asyncio.timeout(patience_s), self._moved:
                await self._moved.wait_for(lambda: self.reached >= at_least_offset)
        except TimeoutError:
            message = f"the states of the cores are being read: up to offset {self.reached} of {at_least_offset}"
            raise NotFollowed(self._broken or message) from None
        assert self._followed is not None
        await self._settle(self._followed)
        return await self._alone(partial(self._foresee, self._followed, job_id))

    @property
    def reached(self) -> int:
        """Records of control before it are in the states."""
        return self._followed.next_offset if self._followed is not None else 0

    async def _alone(self, work: Callable[[], T]) -> T:
        """In a thread, one at a time: the states are neither read nor changed meanwhile."""
        async with self._lock:
            return await asyncio.to_thread(work)

    def _take(self, followed: Followed, batch: list[Entry]) -> None:
        for entry in batch:
            followed.take(entry.record)
            event = entry.record.envelope.event
            if isinstance(event, JobPlaced):
                self._track.started(event.job_id, entry.record.envelope.time_s)
            elif type(event) in TERMINAL:
                self._track.ended(event.subject)
        self._note_handled(followed)

    async def _settle(self, followed: Followed) -> None:
        """Ask how far the services are: what a branch need not decide. Where the bus does not know it, branches do."""
        try:
            self._extent = await survey(self._bus, CORES, (Topic.CONTROL,))
        except BusUnavailable:
            return
        await self._alone(partial(self._note_handled, followed))

    def _note_handled(self, followed: Followed) -> None:
        """Only when all is read that stood on the log then: the decisions on the last records may be its last ones."""
        extent = self._extent
        if extent is not None and extent.positions is not None and self.reached >= extent.ends[CONTROL]:
            followed.handled(extent.positions)
            self._extent = None

    def _foresee(self, followed: Followed, job_id: str) -> Forecast:
        began_s = time.thread_time()
        found = forecast(
            followed.branches(self._now()),
            job_id,
            errors=self._track.errors,
            is_over=lambda part: time.thread_time() - began_s > part * self._limit_s,
        )
        if found.expected.at_s is not None:
            self._track.said(job_id, found.now_s, found.expected.at_s)
        return found

    def _sample(self, followed: Followed) -> None:
        """Foresee the start of one waiting job after the other."""
        branch = followed.branches(self._now())()
        waiting = [job.job_id for job in branch.present("").jobs.values() if job.queued and not job.held]
        if waiting:
            job_id, now_s = waiting[self._samples % len(waiting)], branch.now_s
            self._samples += 1
            began_s = time.thread_time()
            expected = expected_start(branch, job_id, is_over=lambda: time.thread_time() - began_s > self._limit_s)
            if expected.at_s is not None:
                self._track.said(job_id, now_s, expected.at_s)
