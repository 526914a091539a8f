"""The cores as the log has them, kept beside the read models to ask what would start a job that waits.

Nothing is followed until the first question: a gateway that is never asked pays nothing. From then on the states are
kept up to date record by record, and once a minute the start of one waiting job is foreseen, so that it is known how
far such expectations are off. That, and which jobs have arrived lately, is kept next to the read models.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec
from sqlalchemy.exc import SQLAlchemyError

from libs.bus.naming import CONTROL, log_id
from libs.bus.port import Bus, BusUnavailable
from libs.contracts.base import Topic
from libs.contracts.jobs import JobSpec
from libs.forecast.answer import Forecast, NewForecast, forecast, forecast_of_new
from libs.forecast.branch import CORES, Branch, without_collection
from libs.forecast.expected import expected_start
from libs.forecast.following import Followed
from libs.forecast.past import Kept, Past
from libs.inspect.extent import Extent, survey
from libs.inspect.rules import rules_of
from libs.kernel.replica import Replica, pass_over
from libs.runtime.log import fields
from libs.runtime.patience import Patience
from libs.runtime.recovery import from_snapshot
from libs.runtime.roster import roster
from libs.runtime.snapshots import Snapshots
from services.gateway.adapters.feed import Entry, Feed
from services.gateway.adapters.past_store import PastStore

log = logging.getLogger(__name__)

SAMPLE_S = 60.0
"""How often a start is foreseen unasked."""
KEEP_S = 60.0
"""How often what is known of the past is kept for the next gateway."""
MOST_BACK = 20_000
"""Records before the snapshots of the cores that are read for what is known of the past: about a second's work."""
HEARTBEAT_S = 5.0
PATIENCE_S = 5.0
"""How long the states are waited for; the first question has them read."""
MOST_QUESTIONS = 8
"""That are answered or wait; the next is to be asked again."""
T = TypeVar("T")
A = TypeVar("A", Forecast, NewForecast)


class NotFollowed(Exception):
    """There is no answer now; the message says why."""


class Cores:
    """Foresees starts.

    Args:
        bus: the cell's log.
        feed: its live end.
        database: where snapshots of the cores are; SQLAlchemy URL.
        now: seconds since the epoch.
        limit_s: of CPU time: an answer is given by then, with what was found so far.
        stop: set it to end `run`.
    """

    def __init__(
        self, bus: Bus, feed: Feed, database: str, now: Callable[[], float], limit_s: float, stop: asyncio.Event
    ) -> None:
        self._stop, self._patience = stop, Patience(stop)
        self._limit_s = limit_s
        self._bus, self._feed, self._database, self._now = bus, feed, database, now
        self._asked, self._moved = asyncio.Event(), asyncio.Condition()
        self._lock = asyncio.Lock()
        self._followed: Followed | None = None
        self._past, self._log_id = Past(), ""
        self._sampled_s, self._kept_s, self._samples = 0.0, 0.0, 0
        self._extent: Extent | None = None
        """How far the services were; None: that is taken into account."""
        self._questions = 0
        """That are answered or wait."""
        self._broken = ""
        """Why there are no answers any more; empty: there are."""

    async def run(self) -> None:
        """Follow control from the first question on, until told to stop. A fault ends forecasts, and no more."""
        await self._asked.wait()
        while not self._stop.is_set() and not self._broken:
            try:
                await self._follow()
            except BusUnavailable as error:
                await self._patience.wait("follow control for forecasts", error)
            except Exception:
                self._broken = "what would start jobs is not known until the gateway is started anew: its log says why"
                log.exception("forecasts have ended")
                await self._tell()
        # The gateway stops when one of its parts returns.
        await self._stop.wait()

    async def _follow(self) -> None:
        await self._feed.started.wait()
        if self._followed is None:
            self._followed = await self._begun()
            self._sampled_s = self._kept_s = self._now()
        followed = self._followed
        await self._tell()
        async for batch in self._feed.follow(followed.next_offset, HEARTBEAT_S):
            self._patience.over()
            await self._alone(partial(self._take, followed, batch))
            await self._tell()
            if self._now() - self._sampled_s >= SAMPLE_S and self.reached >= self._feed.next_offset:
                self._sampled_s = self._now()
                await self._settle(followed)
                await self._alone(partial(self._sample, followed))
            if self._now() - self._kept_s >= KEEP_S:
                self._kept_s = self._now()
                await self._alone(self._keep)

    async def _tell(self) -> None:
        """Questions wait for more to be taken, or for the end of all answers."""
        async with self._moved:
            self._moved.notify_all()

    async def _begun(self) -> Followed:
        """The states, and what is known of the past, which is followed from where it was left."""
        replicas, self._log_id = await self._restored(), await log_id(self._bus)
        kept = await asyncio.to_thread(self._before)
        followed = Followed(replicas)
        # Not before the log's begin: what was removed there may be archived where the gateway cannot read it.
        begin_offset = await self._bus.begin_offset(CONTROL)
        back = min(followed.next_offset, max(begin_offset, followed.next_offset - MOST_BACK))
        self._past = Past.since(kept, back)
        followed.next_offset = min(followed.next_offset, max(back, self._past.next_offset))
        return followed

    def _before(self) -> Kept | None:
        """What the gateway before this one knew of the past of this log; None: nothing is known of that."""
        store = PastStore(self._database)
        try:
            return store.load(self._log_id)
        except (SQLAlchemyError, msgspec.DecodeError) as error:
            log.warning("what forecasts know of the past cannot be read: it is begun anew", extra=fields(error=error))
            return None
        finally:
            store.close()

    def _keep(self) -> None:
        """For the next gateway. Where the database is away, the next minute keeps as much and more."""
        store = PastStore(self._database)
        try:
            store.save(self._log_id, self._past.kept)
        except SQLAlchemyError as error:
            log.warning("what forecasts know of the past cannot be kept now", extra=fields(error=error))
        finally:
            store.close()

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
        try:
            for service in services:
                rules = await asyncio.to_thread(rules_of, f"services.{service.name}.service")
                replica = found[service.name] = await from_snapshot(service, snapshots, rules, name, end)
                replica.on_impossible = pass_over
        finally:
            if snapshots is not None:
                await asyncio.to_thread(snapshots.close)
        return found

    async def forecast(self, job_id: str, at_least_offset: int, patience_s: float) -> tuple[Forecast, int]:
        """What would start the job, and when it is expected to start.

        Args:
            at_least_offset: records before it are taken into account.
            patience_s: how long it is waited for.

        Returns:
            The answer, and the last offset that is taken into account.

        Raises:
            NotFollowed: they could not be, in that time; many others ask; or forecasts have ended.
        """
        return await self._answered(partial(self._foresee, job_id), at_least_offset, patience_s)

    async def forecast_of_new(self, spec: JobSpec, at_least_offset: int, patience_s: float) -> tuple[NewForecast, int]:
        """When a job would start that were submitted now; as `forecast` else."""
        return await self._answered(partial(self._foresee_new, spec), at_least_offset, patience_s)

    async def _answered(
        self, foresee: Callable[[Followed, Callable[[float], bool]], A], at_least_offset: int, patience_s: float
    ) -> tuple[A, int]:
        if self._questions >= MOST_QUESTIONS:
            raise NotFollowed(f"{self._questions} such questions are being answered already")
        self._questions += 1
        try:
            followed = await self._up_to(at_least_offset, patience_s)
            await self._settle(followed)
            return await self._alone(partial(self._timed, foresee, followed))
        finally:
            self._questions -= 1

    async def _up_to(self, offset: int, patience_s: float) -> Followed:
        """The states, as soon as the records before the offset are in them."""
        self._asked.set()
        try:
            async with asyncio.timeout(patience_s), self._moved:
                await self._moved.wait_for(lambda: self._broken or self.reached >= offset)
        except TimeoutError:
            message = f"the states of the cores are being read: up to offset {self.reached} of {offset}"
            raise NotFollowed(message) from None
        if self._broken or self._followed is None:
            raise NotFollowed(self._broken or "the states of the cores are being read")
        return self._followed

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
            self._past.take(entry.record)
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

    def _timed(self, foresee: Callable[[Followed, Callable[[float], bool]], A], followed: Followed) -> tuple[A, int]:
        began_s = time.thread_time()
        found = foresee(followed, lambda part: time.thread_time() - began_s > part * self._limit_s)
        return found, followed.next_offset - 1

    def _foresee(self, job_id: str, followed: Followed, is_over: Callable[[float], bool]) -> Forecast:
        return forecast(self._branches(followed), job_id, track=self._past.track, is_over=is_over)

    def _foresee_new(self, spec: JobSpec, followed: Followed, is_over: Callable[[float], bool]) -> NewForecast:
        return forecast_of_new(self._branches(followed), spec, track=self._past.track, is_over=is_over)

    def _branches(self, followed: Followed) -> Callable[[], Branch]:
        return followed.branches(self._now(), self._past.arrivals.latest)

    def _sample(self, followed: Followed) -> None:
        """Foresee the start of one waiting job after the other."""
        with without_collection():
            branch = self._branches(followed)()
            waiting = [job.job_id for job in branch.present("").jobs.values() if job.queued and not job.held]
            if waiting:
                self._sample_of(branch, waiting[self._samples % len(waiting)])
                self._samples += 1
            branch.close()

    def _sample_of(self, branch: Branch, job_id: str) -> None:
        now_s, began_s = branch.now_s, time.thread_time()
        expected = expected_start(branch, job_id, is_over=lambda: time.thread_time() - began_s > self._limit_s)
        if expected.at_s is not None:
            self._past.track.said(job_id, now_s, expected.at_s, expected.basis)
