"""The shell that follows the lines of jobs: what they tell becomes a fact on control, each once.

Two readers share one session. Control says which attempts run, which have failed, and what was told of them before; the
logs topic has the lines. When an attempt has failed, its lines are read to the end, and the last word about them is
said: an agent appends lines before it says that their task has ended.
"""

from __future__ import annotations

import asyncio
import logging

from libs.bus import codec
from libs.bus.partitioner import partition_index
from libs.bus.port import Bus, Message, Outgoing, Partition
from libs.contracts.agent import JobLogged
from libs.contracts.base import Topic
from libs.contracts.envelope import Envelope, whole_microseconds
from libs.contracts.failure_analysis import OWNER, FailureObserved, RulesLoaded
from libs.contracts.wire import Undecodable
from libs.kernel.ids import derived_id
from libs.runtime.clock import Clock
from libs.runtime.committer import Committer
from libs.runtime.deadletter import dead_letter
from libs.runtime.listener import Listener
from libs.runtime.log import fields
from libs.runtime.recovery import CONTROL
from libs.runtime.resuming import resumed
from libs.runtime.stats import Phase, Stats
from libs.runtime.tail import Tail, all_partitions
from libs.runtime.tasks import all_or_none
from services.failure_analysis.adapters.own_rules import Loaded, OwnRules
from services.failure_analysis.core import following
from services.failure_analysis.core.following import Following, Key
from services.failure_analysis.core.watching import WATCH, Watch

log = logging.getLogger(__name__)

BATCH = 200
LOOK_EVERY_S = 0.25
"""How soon the end of an attempt, of which nothing is printed any more, is noticed."""
COMMIT_EVERY_S = 2.0
RULES_EVERY_S = 5.0
"""How often the folder of operators' rules is looked at."""


class Lines:
    """Appends RulesLoaded and FailureObserved to control."""

    def __init__(self, bus: Bus, control: Listener[Watch], clock: Clock, stats: Stats, rules: OwnRules) -> None:
        """Wire the pure parts to a bus.

        Args:
            bus: the cell's.
            control: follows control.
            clock: of this process.
            stats: kept up to date.
            rules: where the rules come from.
        """
        self._bus, self._control, self._clock, self._stats, self._rules = bus, control, clock, stats, rules
        self._following: Following
        self._committer: Committer
        self._tail: Tail
        self._next: dict[Partition, int] = {}
        self._ends: dict[Key, tuple[Partition, int]] = {}
        """{attempt that has failed: where its lines end}."""
        self._done: dict[Key, None] = {}
        """Attempts about which the last word was said, until that is read back."""
        self._committed_at_s = self._looked_at_s = 0.0
        self._caught_up = asyncio.Event()

    async def caught_up(self, stop: asyncio.Event) -> bool:
        """Wait until the last word was said about all attempts that failed before the start; False if stopped first.

        The core had better begin then: its patience with lines may have ended while neither of them ran.
        """
        waits = [asyncio.create_task(event.wait()) for event in (self._caught_up, stop)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return not stop.is_set()

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set.

        Raises:
            StopRequested: asked to stop while the log could not be reached.
            Fenced: a newer instance has taken over.
            CoreFailed: a control record could not be taken.
        """
        loaded = await asyncio.to_thread(self._rules.load)
        assert loaded is not None, "nothing was loaded before"
        self._following = Following(loaded.rules)
        partitions = await all_partitions(self._bus, Topic.LOGS, stop)
        self._committer = await Committer.open(self._bus, WATCH.name, partitions, stop)
        try:
            await self._control.catch_up(stop)
            await self._say(loaded)
            self._stats.phase = Phase.LIVE
            await all_or_none(stop, self._control.follow(stop), self._follow(stop))
        finally:
            self._stats.phase = Phase.STOPPED
            await self._control.close()
            await self._committer.close()

    async def _follow(self, stop: asyncio.Event) -> None:
        starts = await resumed(self._bus, self._committer.committed, self._committer.patience)
        self._next = dict(starts)
        self._tail = Tail(self._bus, starts, BATCH, self._clock, stop)
        log.info("lines are followed", extra=fields(rules=self._following.rules.digest))
        try:
            while not stop.is_set():
                await self._take(await self._tail.next(self._clock.now_s() + LOOK_EVERY_S) or [])
                await self._look_at_rules()
        finally:
            await self._tail.close()

    async def _take(self, messages: list[Message]) -> None:
        now_s = self._clock.now_s()
        outputs: list[Outgoing] = []
        for message in messages:
            outputs += self._read(message, now_s)
            self._next[message.partition] = message.offset + 1
            await asyncio.sleep(0)  # the core beside it has its turn
        told = self._following.told(self._control.state.attempts)
        told += await self._last_words()
        for each in told:
            why = fields(job=each.job_id, attempt=each.attempt, rule=each.rule, line=each.line)
            log.info("a line decides", extra=why)
            outputs.append(codec.outgoing(following.envelope(each, whole_microseconds(now_s))))
        if outputs or now_s - self._committed_at_s >= COMMIT_EVERY_S:
            await self._commit(outputs, now_s)
        if not self._ends:
            self._caught_up.set()

    def _read(self, message: Message, now_s: float) -> list[Outgoing]:
        try:
            envelope = codec.record(message).envelope
        except Undecodable as error:
            log.warning("logs record goes to the dead letters", extra=fields(error=error))
            return [dead_letter(message, OWNER, error)]
        event = envelope.event
        if isinstance(event, JobLogged):
            self._stats.events += 1
            self._following.take(envelope, event, message.partition.index, message.offset, now_s)
        return []

    async def _last_words(self) -> list[FailureObserved]:
        """Of the attempts that have failed and of which all lines have been read."""
        attempts = self._control.state.attempts
        failed = {(job_id, each.number): each.ended for job_id, each in attempts.items() if each.ended is not None}
        self._done = {key: None for key in self._done if key in failed}
        found = []
        for key, ended in failed.items():
            if key in self._done or not await self._is_read(key):
                continue
            self._done[key] = None
            del self._ends[key]
            found.append(self._following.last_word(*key, ended))
        return found

    async def _is_read(self, key: Key) -> bool:
        if key not in self._ends:
            partitions = list(self._committer.committed)
            partition = partitions[partition_index(key[0], len(partitions))]
            looking = f"read where {partition.topic}/{partition.index} ends"
            end = await self._committer.patience.outlast(lambda: self._bus.end_offset(partition), looking)
            self._ends[key] = partition, end
        partition, end = self._ends[key]
        return self._next[partition] >= end

    async def _commit(self, outputs: list[Outgoing], now_s: float) -> None:
        self._following.forget_all_but(self._control.state.attempts, now_s)
        moved: dict[Partition, int] = {}
        for partition, committed in self._committer.committed.items():
            next_offset = self._following.position(partition.index, self._next[partition])
            if next_offset > committed.next_offset:
                moved[partition] = next_offset
        if outputs or moved:
            await self._committer.commit_numbered(outputs, moved)
            self._stats.commits += 1
            self._stats.decisions += len(outputs)
        self._committed_at_s = now_s

    async def _look_at_rules(self) -> None:
        now_s = self._clock.now_s()
        if now_s - self._looked_at_s < RULES_EVERY_S:
            return
        self._looked_at_s = now_s
        loaded = await asyncio.to_thread(self._rules.load)
        if loaded is not None:
            self._following.rules = loaded.rules
            await self._say(loaded)

    async def _say(self, loaded: Loaded) -> None:
        """Say which rules are in force, unless that stands on control already."""
        if loaded.refused:
            log.error("own rules are refused, the ones before stay in force", extra=fields(why=loaded.refused))
        event = RulesLoaded(
            digest=loaded.rules.digest,
            rules=len(loaded.rules.rules),
            consequences=dict(loaded.consequences),
            refused=loaded.refused,
        )
        if self._control.state.loaded == event:
            return
        end = await self._committer.patience.outlast(lambda: self._bus.end_offset(CONTROL), "ask for the log's end")
        envelope = Envelope(
            id=derived_id(f"{OWNER}/rules", event.digest, end),
            source=OWNER,
            time_s=whole_microseconds(self._clock.now_s()),
            event=event,
        )
        await self._committer.commit_numbered([codec.outgoing(envelope)], {})
