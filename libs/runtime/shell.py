"""The shell of a core: read, decide, append, over and over, in such a way that any crash changes nothing.

    open the session ─> last snapshot ─> fold to the committed position ─> read ─> step ─> commit ─┐
                                                                            ▲                      │
                                                                            └──────────────────────┘

What a core decides is appended in one transaction with the position behind its causes. Between two commits
nothing of this process is needed: killed at any point, it starts again from the last commit and
derives the same decisions with the same ids.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from libs.bus import codec
from libs.bus.port import Bus, BusUnavailable, Message, TellsTime
from libs.contracts.envelope import Envelope
from libs.contracts.runtime import ServiceStarted
from libs.inspect.archive import whole_reader
from libs.inspect.rules import rules_of
from libs.kernel.ids import derived_id
from libs.kernel.replica import Replica
from libs.kernel.service import Service
from libs.runtime.clock import Clock, SteadyClock
from libs.runtime.committer import Committer
from libs.runtime.exits import CoreFailed, StopRequested
from libs.runtime.feeder import Feeder
from libs.runtime.handled import Tracer
from libs.runtime.inbox import Inbox
from libs.runtime.lag import Lag
from libs.runtime.log import fields
from libs.runtime.patience import Patience
from libs.runtime.recovery import CONTROL, Recovered, Recovery, log_id
from libs.runtime.saving import Saving
from libs.runtime.settings import Settings
from libs.runtime.snapshots import Snapshots
from libs.runtime.stats import Phase, Stats
from libs.runtime.timers import SOURCE, StuckTimer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    """How a shell runs; none of it changes what the core decides."""

    batch_records: int = 500
    """Most records taken between two commits."""
    commit_bytes: int = 4 * 1024 * 1024
    """Decisions of a batch are committed early when they get larger than this."""
    commit_every_records: int = 5_000
    """Records without decisions move the committed position after so many, …"""
    commit_every_s: float = 2.0
    """… or after so long."""
    snapshot_every_records: int = 20_000
    snapshot_every_s: float = 300.0
    check_every_records: int = 10_000
    strict: bool = False
    """A state that contradicts itself stops the service."""

    @classmethod
    def of(cls, settings: Settings) -> Options:
        """As the environment has them."""
        return cls(
            batch_records=settings.batch_records,
            snapshot_every_records=settings.snapshot_every_records,
            snapshot_every_s=settings.snapshot_every_s,
            check_every_records=settings.check_every_records,
        )


@dataclass(frozen=True)
class Epoch:
    """Which version decides."""

    version: str
    """Of the package."""
    rules: str
    """`rules_of` the service."""

    @classmethod
    def at_hand(cls, service: str) -> Epoch:
        """As a service of the roster decides by the code that runs here."""
        return cls(version("sanjaya-scheduler"), rules_of(f"services.{service}.service"))


UNNAMED = Epoch("", "")
"""Nothing is said about it: for cores that are no service of the roster."""


class Shell:
    """Runs one core on a bus."""

    def __init__(
        self,
        service: Service[Any],
        bus: Bus,
        *,
        snapshots: Snapshots | None = None,
        clock: Clock | None = None,
        options: Options | None = None,
        stats: Stats | None = None,
        tracer: Tracer | None = None,
        epoch: Epoch = UNNAMED,
    ) -> None:
        """Wire a core to the world; without `snapshots` every start folds the whole log."""
        self._service, self._bus, self._snapshots = service, bus, snapshots
        self._clock: Clock = clock or SteadyClock()
        self._options = options or Options()
        self.stats = stats or Stats(service.name)
        self._tracer, self._epoch = tracer, epoch
        self._feeder: Feeder
        self._committer: Committer
        self._inbox: Inbox
        self._saving: Saving | None = None
        self._patience: Patience
        self._committed_at_s = 0.0
        self._log_s, self._then_s = 0.0, 0.0
        """The latest time that the log's clock has shown, and what the shell's clock showed then."""
        self._lag = Lag(bus, self.stats)
        self._quiet = False
        """The last read found nothing: we are at the log's end."""

    @property
    def replica(self) -> Replica[Any]:
        """The core as it is now, once the shell has started."""
        return self._feeder.replica

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set.

        Raises:
            CoreFailed: a record could not be decoded or handled; what was decided before it is committed.
            Fenced: a newer instance of the service has taken over.
            BusError: the log refuses for good (a decision is too large, records are gone).
        """
        self._patience = Patience(stop)
        try:
            async with AsyncExitStack() as closing:
                await self._open(stop, closing)
                while not stop.is_set():
                    await self._turn()
                await self._finish()
        except StopRequested as during:
            log.info("stopped while the log could not be reached", extra=fields(doing=during))
        finally:
            self.stats.phase = Phase.STOPPED

    async def _open(self, stop: asyncio.Event, closing: AsyncExitStack) -> None:
        name, options, outlast = self._service.name, self._options, self._patience.outlast
        self._committer = await Committer.open(self._bus, name, [CONTROL], stop, self._patience)
        closing.push_async_callback(self._committer.close)
        committed = self._committer.committed[CONTROL]
        log_name = await outlast(lambda: log_id(self._bus), "read the log's first record")
        self.stats.phase = Phase.REPLAYING
        recovery = Recovery(self._service, self._bus, self._epoch.rules, self._snapshots, self.stats, stop)
        recovered = await recovery.run(log_name, committed.next_offset)
        replica, now_s = recovered.replica, self._clock.now_s()
        self._feeder = Feeder(
            recovered,
            self.stats,
            check_every=options.check_every_records,
            strict=options.strict,
            traced=self._tracer is not None,
        )
        if self._snapshots is not None:
            self._saving = Saving(
                self._snapshots,
                log_name,
                self.stats,
                every_records=options.snapshot_every_records,
                every_s=options.snapshot_every_s,
                since=recovered.snapshot_offset,
                now_s=now_s,
                rules=self._epoch.rules,
            )
        self._look_at_clocks(replica.now_s)
        if isinstance(bus := self._bus, TellsTime):  # what was due meanwhile is not waited for again
            log_s = await outlast(lambda: bus.now_s(), "ask for the log's time")
            self._look_at_clocks(log_s or replica.now_s)
        reader = await outlast(lambda: whole_reader(self._bus, {CONTROL: replica.next_offset}), "open a reader")
        self._inbox = Inbox(reader, options.batch_records, self._clock, stop)
        closing.push_async_callback(self._inbox.close)
        closing.push_async_callback(self._lag.close)
        self._committed_at_s = now_s
        self._feeder.check()
        await self._begin_epoch(recovered)
        self.stats.phase = Phase.LIVE
        self.stats.next_offset = replica.next_offset
        log.info(
            "live",
            extra=fields(snapshot_offset=recovered.snapshot_offset, next_offset=replica.next_offset),
        )

    async def _begin_epoch(self, recovered: Recovered) -> None:
        """Say on the log by which rules is decided from here on, unless that stands there already."""
        if self._epoch == UNNAMED or self._epoch.rules == recovered.rules:
            return
        next_offset, name = self._feeder.handled, self._service.name
        end = await self._patience.outlast(lambda: self._bus.end_offset(CONTROL), "ask for the log's end")
        envelope = Envelope(
            id=derived_id(f"{SOURCE}/{name}/epoch", self._epoch.rules, end),
            source=SOURCE,
            time_s=self._clock.now_s(),
            event=ServiceStarted(
                service=name, version=self._epoch.version, rules=self._epoch.rules, next_offset=next_offset
            ),
        )
        self._feeder.timers.begin_epoch(envelope.id)
        self._feeder.outbox.append(codec.outgoing(envelope))
        await self._commit()

    async def _turn(self) -> None:
        """Take what the log has, or what the clock says; then look after the house."""
        self.stats.beat = time.monotonic()
        try:
            messages = await self._inbox.next(self._timer_fires_at_s())
        except BusUnavailable as error:
            self.stats.log_away = True
            await self._patience.wait("read", error)
            return
        if messages is not None:
            self._patience.over()
            self.stats.log_away = False
            self._quiet = not messages
            await self._take(messages)
        await self._fire_timer()
        await self._keep_house()

    async def _take(self, messages: list[Message]) -> None:
        """Feed the core and commit what it decides; at a bad record, what precedes it."""
        feeder, decided = self._feeder, False
        if messages:
            self._look_at_clocks(messages[-1].appended_at_s)
            if self._saving is not None:
                self._saving.learn_log_id(messages[0])
        try:
            for message in messages:
                feeder.feed(message)
                if feeder.outbox_bytes > self._options.commit_bytes:
                    decided = True
                    await self._commit()
        except CoreFailed:
            await self._commit()
            raise
        if messages:
            self.stats.progress_at_s = self._clock.now_s()
            self._inbox.handled(decided=decided or bool(feeder.outbox))
        self.stats.next_offset = feeder.handled
        if feeder.outbox:
            await self._commit()

    def _look_at_clocks(self, log_s: float) -> None:
        self._log_s, self._then_s = log_s, self._clock.now_s()

    def _timer_fires_at_s(self) -> float | None:
        """By the shell's clock. A core is ahead of the log's where that was set back."""
        replica = self._feeder.replica
        return self._feeder.timers.fires_at(replica.next_wakeup, max(self._log_s, replica.now_s), self._then_s)

    async def _fire_timer(self) -> None:
        """Append the TimerFired that the core has asked for, if its time has come."""
        fires_at_s, now_s = self._timer_fires_at_s(), self._clock.now_s()
        if fires_at_s is None or fires_at_s > now_s:
            return
        due_s = self._feeder.replica.next_wakeup
        assert due_s is not None  # the core asks for a moment
        try:
            envelope = self._feeder.timers.fire(due_s, now_s)
        except StuckTimer as error:
            raise CoreFailed(str(error)) from error
        self._feeder.outbox.append(codec.outgoing(envelope))
        self.stats.timers += 1
        await self._commit()

    async def _commit(self) -> None:
        """Append the outbox and move the position, in one transaction."""
        feeder, started = self._feeder, time.perf_counter()
        position = feeder.position
        if not feeder.outbox and position == self._committer.committed[CONTROL]:
            return
        await self._committer.commit(feeder.outbox, {CONTROL: position})
        self._committed_at_s = self._clock.now_s()
        self.stats.commits += 1
        if self.stats.on_commit is not None:
            self.stats.on_commit(time.perf_counter() - started)
        if self._tracer is not None:
            for handled in feeder.traces:
                self._tracer.handled(handled)
        feeder.emptied()

    async def _keep_house(self) -> None:
        """Move the position on, save the state, look how far behind we are: each when it is time."""
        feeder, now_s = self._feeder, self._clock.now_s()
        uncommitted = feeder.handled - self._committer.committed[CONTROL].next_offset
        late = now_s - self._committed_at_s >= self._options.commit_every_s
        if uncommitted >= self._options.commit_every_records or (late and uncommitted > 0):
            await self._commit()
        if self._saving is not None and self._at_rest and self._saving.due(feeder.handled, now_s):
            self._saving.save(feeder.replica, now_s)
        self._lag.turn(self._quiet)

    @property
    def _at_rest(self) -> bool:
        """The state holds nothing that is not committed."""
        return self._feeder.handled <= self._committer.committed[CONTROL].next_offset

    async def _finish(self) -> None:
        """A graceful stop: commit how far we are and save the state."""
        await self._commit()
        if self._saving is not None and self._at_rest:
            await self._saving.finish(self._feeder.replica, self._clock.now_s())
        log.info("stopped", extra=fields(next_offset=self._feeder.handled))
