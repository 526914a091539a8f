"""The shell of a core: read, decide, append, over and over, in such a way that any crash changes nothing.

    open the session ─> last snapshot ─> replay to the committed position ─> read ─> step ─> commit ─┐
                                                                              ▲                      │
                                                                              └──────────────────────┘

What a core decides is appended in one transaction with the position behind its causes. Between two commits
nothing of this process matters to anybody: killed at any point, it starts again from the last commit and
derives the same decisions with the same ids.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from libs.bus import codec
from libs.bus.port import Bus, BusUnavailable, Message
from libs.inspect.archive import whole_reader
from libs.kernel.replica import Replica
from libs.kernel.service import Service
from libs.runtime.clock import Clock, WallClock
from libs.runtime.committer import Committer
from libs.runtime.exits import CoreFailed, StopRequested
from libs.runtime.feeder import Feeder
from libs.runtime.handled import Tracer
from libs.runtime.inbox import Inbox
from libs.runtime.lag import Lag
from libs.runtime.log import fields
from libs.runtime.patience import Patience
from libs.runtime.recovery import CONTROL, log_id, recover
from libs.runtime.saving import Saving
from libs.runtime.settings import Settings
from libs.runtime.snapshots import Snapshots
from libs.runtime.stats import Phase, Stats
from libs.runtime.timers import StuckTimer

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
    ) -> None:
        """Wire a core to the world; without `snapshots` every start replays the whole log."""
        self._service, self._bus, self._snapshots = service, bus, snapshots
        self._clock: Clock = clock or WallClock()
        self._options = options or Options()
        self.stats = stats or Stats(service.name)
        self._tracer = tracer
        self._feeder: Feeder
        self._committer: Committer
        self._inbox: Inbox
        self._saving: Saving | None = None
        self._patience: Patience
        self._committed_at_s = 0.0
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
        replica = await recover(self._service, self._snapshots, log_name, committed.next_offset)
        now_s = self._clock.now_s()
        self._feeder = Feeder(
            replica,
            committed,
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
                since=replica.next_offset,
                now_s=now_s,
            )
        reader = await outlast(lambda: whole_reader(self._bus, {CONTROL: replica.next_offset}), "open a reader")
        self._inbox = Inbox(reader, options.batch_records, self._clock, stop)
        closing.push_async_callback(self._inbox.close)
        closing.push_async_callback(self._lag.close)
        self._committed_at_s = now_s
        self.stats.phase = Phase.REPLAYING
        log.info("started", extra=fields(snapshot_offset=replica.next_offset, committed=committed.next_offset))
        self._go_live_when_replayed()

    async def _turn(self) -> None:
        """Take what the log has, or what the clock says; then look after the house."""
        self.stats.beat = time.monotonic()
        try:
            messages = await self._inbox.next(self._timer_due_s())
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
        feeder = self._feeder
        if messages and self._saving is not None:
            self._saving.learn_log_id(messages[0])
        try:
            for message in messages:
                feeder.feed(message)
                if feeder.outbox_bytes > self._options.commit_bytes:
                    await self._commit()
        except CoreFailed:
            if feeder.live:
                await self._commit()
            raise
        if messages:
            self.stats.progress_at_s = self._clock.now_s()
        self.stats.next_offset = feeder.handled
        self._go_live_when_replayed()
        if feeder.outbox:
            await self._commit()

    def _go_live_when_replayed(self) -> None:
        if self.stats.phase is Phase.REPLAYING and self._feeder.live:
            self._feeder.end_replay()
            self.stats.phase = Phase.LIVE
            log.info("live", extra=fields(next_offset=self._feeder.handled))

    def _timer_due_s(self) -> float | None:
        feeder = self._feeder
        return feeder.timers.due(feeder.replica.next_wakeup) if feeder.live else None

    async def _fire_timer(self) -> None:
        """Append the TimerFired that the core has asked for, if its time has come."""
        due_s, now_s = self._timer_due_s(), self._clock.now_s()
        if due_s is None or due_s > now_s:
            return
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
        if feeder.live:
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
        if self._feeder.live:
            await self._commit()
        if self._saving is not None and self._at_rest:
            await self._saving.finish(self._feeder.replica, self._clock.now_s())
        log.info("stopped", extra=fields(next_offset=self._feeder.handled))
