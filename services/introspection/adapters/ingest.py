"""The ingest shell: what telemetry shows becomes facts on control, each exactly once.

Three readers share one session. Control says which jobs and nodes there are, and what was reported already;
closed windows become JobProfiled; heartbeats that fail to come become NodeLost, samples of tasks that do not get on
become JobStalled, LossDiverged and GpuIdle, and what control should say next about a job and does not becomes JobStuck.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping

from libs.bus import codec
from libs.bus.port import Bus, Message, Outgoing, Partition
from libs.contracts.agent import GpuSampled, NodeHeartbeat, TaskSampled
from libs.contracts.base import Topic
from libs.contracts.envelope import Envelope
from libs.contracts.introspection import OWNER, JobStalled, JobStuck, WindowClosed
from libs.contracts.wire import Undecodable
from libs.kernel.held import Held
from libs.kernel.ids import derived_id
from libs.lifecycle import stuck
from libs.node import loads
from libs.node.alarms import Alarm, Alarms, Limits
from libs.node.loads import Loads
from libs.runtime.agents import Agents
from libs.runtime.clock import Clock
from libs.runtime.committer import Committer
from libs.runtime.deadletter import dead_letter
from libs.runtime.handled import Handled, Tracer
from libs.runtime.listener import Listener
from libs.runtime.log import fields
from libs.runtime.messages import header, wire_type
from libs.runtime.resuming import resumed
from libs.runtime.stats import Phase, Stats
from libs.runtime.tail import Tail, all_partitions, ends
from libs.runtime.tasks import all_or_none
from services.introspection.adapters.stacks import with_stacks
from services.introspection.adapters.telemetry import GPU, HEARTBEAT, TASK
from services.introspection.core import hosts, liveness, profiles, skew
from services.introspection.core.hosts import Hosts
from services.introspection.core.liveness import Liveness
from services.introspection.core.profiles import Profiles
from services.introspection.core.skew import Skews
from services.introspection.core.watching import WATCH, Watch

log = logging.getLogger(__name__)

BATCH = 1000
COMMIT_EVERY_S = 2.0
LOOK_EVERY_S = 1.0
LOOK_FOR_STUCK_EVERY_S = 5.0
DEAF_AFTER_S = 5.0
"""A listener that did not come round for so long (a stopped process, a machine asleep) has heard nothing."""


class Ingest:
    """Appends JobProfiled, HostProfiled, ClockSkewed, GpuLoadChanged, NodeLost and alarms to control."""

    def __init__(
        self,
        bus: Bus,
        control: Listener[Watch],
        clock: Clock,
        stats: Stats,
        *,
        interval_s: float,
        lost_after_s: float,
        stuck_after_s: float = stuck.STUCK_AFTER_S,
        limits: Limits | None = None,
        agents: Agents | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        """Wire the pure parts to a bus.

        Args:
            bus: the cell's.
            control: follows control.
            clock: the listener's.
            stats: kept up to date.
            interval_s: least measured time between two JobProfiled of a job.
            lost_after_s: a node that is silent so long is lost.
            stuck_after_s: what is awaited of a job may be overdue for so long.
            limits: from when on something is an alarm; None: as by default.
            agents: asked for the stacks of stalled jobs; None: nothing is asked.
            tracer: told what was reported; None when nothing is traced.
        """
        self._bus, self._control, self._clock, self._stats = bus, control, clock, stats
        self._profiles = Profiles(interval_s)
        self._liveness = Liveness(lost_after_s, clock.now_s())
        self._hosts, self._loads, self._skews = Hosts(), Loads(), Skews()
        self._standing, self._looked_s = stuck.Watch(stuck_after_s), clock.now_s()
        self._alarms, self._agents = Alarms(limits or Limits()), agents or Agents(None)
        self._unread: list[Outgoing] = []
        """Dead letters of the listener."""
        self._held = Held()
        self._tracer = tracer
        self._reported: list[Handled] = []
        self._next: dict[Partition, int] = {}
        self._tails: list[Tail] = []
        self._committer: Committer
        self._committing = asyncio.Lock()
        self._committed_at_s = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set.

        Raises:
            StopRequested: asked to stop while the log could not be reached.
            Fenced: a newer instance has taken over.
            CoreFailed: a control record could not be taken.
        """
        partitions = await all_partitions(self._bus, Topic.PROFILES, stop)
        self._committer = await Committer.open(self._bus, WATCH.name, partitions, stop)
        try:
            await self._control.catch_up(stop)
            self._stats.phase = Phase.LIVE
            await all_or_none(stop, self._control.follow(stop), self._profile(stop), self._listen(stop))
        finally:
            self._stats.phase = Phase.STOPPED
            await self._control.close()
            await self._committer.close()

    async def _profile(self, stop: asyncio.Event) -> None:
        """Closed windows in, JobProfiled out, in one commit with the positions behind them."""
        starts = await resumed(self._bus, self._committer.committed, self._committer.patience)
        self._next = dict(starts)
        tail = self._tail(starts, stop)
        try:
            while not stop.is_set():
                await self._take_windows(await tail.next() or [])
        finally:
            await tail.close()

    async def _take_windows(self, messages: list[Message]) -> None:
        outputs: list[Outgoing] = []
        for message in messages:
            outputs += self._take_window(message)
            self._next[message.partition] = message.offset + 1
        for job_id in self._profiles.forget_all_but(self._control.state.running):
            self._held.release(job_id)
        now_s = self._clock.now_s()
        if outputs or now_s - self._committed_at_s >= COMMIT_EVERY_S:
            self._committed_at_s = now_s
            await self._commit(outputs, self._moved())
        if self._tracer is not None:
            for reported in self._reported:
                self._tracer.handled(reported)
            self._reported.clear()

    def _take_window(self, message: Message) -> list[Outgoing]:
        try:
            cause = codec.record(message).envelope
        except Undecodable as error:
            log.warning("profiles record goes to the dead letters", extra=fields(error=error))
            return [dead_letter(message, OWNER, error)]
        window = cause.event
        if not isinstance(window, WindowClosed):
            return []
        self._stats.events += 1
        profile = self._profiles.take(window, self._control.state.running.get(window.job_id))
        if self._profiles.gathers(window.job_id):
            self._held.hold(window.job_id, message.partition.index, message.offset)
        else:
            self._held.release(window.job_id)
        if profile is None:
            return []
        envelope = profiles.envelope(profile, cause)
        if self._tracer is not None:
            self._reported.append(Handled(cause, [envelope], time.time_ns()))
        return [codec.outgoing(envelope)]

    def _moved(self) -> dict[Partition, int]:
        moved = {}
        for partition, next_offset in self._next.items():
            done = self._held.position(partition.index, next_offset)
            if done > self._committer.committed[partition].next_offset:
                moved[partition] = done
        return moved

    async def _listen(self, stop: asyncio.Event) -> None:
        """Heartbeats in, NodeLost out when they stop coming although the log delivers."""
        starts = await ends(self._bus, Topic.TELEMETRY, stop)
        tail = self._tail(starts, stop)
        turned_s = self._clock.now_s()
        interruptions = self._interruptions
        self._liveness.not_listening(turned_s)
        try:
            while not stop.is_set():
                messages = await tail.next(turned_s + LOOK_EVERY_S)
                now_s = self._clock.now_s()
                behind = messages is not None and len(messages) == BATCH
                if behind or now_s - turned_s > DEAF_AFTER_S or self._interruptions != interruptions:
                    self._liveness.not_listening(now_s)
                    self._standing.not_listening()
                turned_s, interruptions = now_s, self._interruptions
                alarms: list[tuple[Envelope, str, Alarm]] = []
                profiled: list[Envelope] = []
                for message in messages or []:
                    kind = wire_type(message)
                    if kind == HEARTBEAT:
                        profiled += self._hear(message, now_s)
                    elif kind == GPU and self._control.state.guests:
                        profiled += self._load_of(message)
                    elif kind == TASK:
                        alarms += self._alarms_of(message)
                await self._report_lost(now_s)
                await self._report_stuck(now_s)
                self._hosts.forget_all_but(self._control.state.nodes)
                self._skews.forget_all_but(self._control.state.nodes)
                self._loads.forget_all_but(self._control.state.nodes)
                await self._commit([codec.outgoing(envelope) for envelope in profiled], {})
                await self._report_alarms(alarms)
        finally:
            await tail.close()

    def _tail(self, starts: Mapping[Partition, int], stop: asyncio.Event) -> Tail:
        tail = Tail(self._bus, starts, BATCH, self._clock, stop)
        self._tails.append(tail)
        return tail

    @property
    def _interruptions(self) -> int:
        return self._control.interruptions + sum(tail.interruptions for tail in self._tails)

    async def _report_lost(self, now_s: float) -> None:
        if self._liveness.doubts(self._control.state.nodes, now_s):
            # Heartbeats cannot come while the log can be read and takes nothing, as on a full disk.
            waits = self._committer.patience.waits
            await self._commit([], {}, anyway=True)
            if self._committer.patience.waits != waits:
                now_s = self._clock.now_s()
                self._liveness.not_listening(now_s)
        lost = self._liveness.lost(self._control.state.nodes, now_s)
        for event in lost:
            log.warning("node is lost", extra=fields(node=event.node_id, silent_s=event.silent_s))
        if lost:
            await self._commit([codec.outgoing(liveness.envelope(event, now_s)) for event in lost], {})

    async def _report_stuck(self, now_s: float) -> None:
        if now_s - self._looked_s < LOOK_FOR_STUCK_EVERY_S:
            return
        self._looked_s = now_s
        outputs: list[Outgoing] = []
        for key, fact in self._standing.look(self._control.state.books, now_s):
            if isinstance(fact, JobStuck):
                log.warning("a job is left standing", extra=fields(job=fact.job_id, why=fact.reason.message))
            envelope = Envelope(id=derived_id(OWNER, key, 0), source=OWNER, time_s=now_s, event=fact)
            outputs.append(codec.outgoing(envelope))
        await self._commit(outputs, {})

    def _read(self, message: Message) -> Envelope | None:
        """A record of telemetry; None: it cannot be read, and goes to the dead letters."""
        try:
            return codec.record(message).envelope
        except Undecodable as error:
            log.warning("telemetry record goes to the dead letters", extra=fields(error=error))
            self._unread.append(dead_letter(message, OWNER, error))
            return None

    def _hear(self, message: Message, now_s: float) -> list[Envelope]:
        """Take a heartbeat, also one that cannot be read.

        Returns:
            What it brings about: the profile of the node's host that is due, a change of its clock.
        """
        cause = self._read(message)
        if cause is None or not isinstance(beat := cause.event, NodeHeartbeat):
            self._liveness.heard(header(message, "ce_subject").decode(errors="replace"), now_s)
            return []
        self._liveness.heard(beat.node_id, now_s, beat.lost_after_s)
        state = self._control.state
        if state.nodes.get(beat.node_id) != beat.incarnation:
            return []
        profile = self._hosts.take(beat, cause.time_s, state.hosts)
        found = [hosts.envelope(profile, cause)] if profile is not None else []
        skew_s = cause.source_time_s - cause.time_s
        skewed = self._skews.take(beat.node_id, beat.incarnation, skew_s, state.skews)
        if skewed is not None:
            log.warning("clock is off", extra=fields(node=beat.node_id, skew_s=skewed.skew_s))
            found.append(skew.envelope(skewed, cause))
        return found

    def _load_of(self, message: Message) -> list[Envelope]:
        """The change of a GPU's load that a sample brings about, if it does."""
        cause = self._read(message)
        if cause is None or not isinstance(sample := cause.event, GpuSampled):
            return []
        state = self._control.state
        if sample.node_id not in state.nodes:
            return []
        change = self._loads.take(sample, cause.time_s, state.loads)
        return [loads.envelope(change, cause)] if change is not None else []

    def _alarms_of(self, message: Message) -> list[tuple[Envelope, str, Alarm]]:
        """What follows from a sample: the sample, and the key and the fact of each."""
        cause = self._read(message)
        if cause is None or not isinstance(sample := cause.event, TaskSampled):
            return []
        running = self._control.state.running.get(sample.job_id)
        found = self._alarms.take(sample, running.watched if running is not None else None)
        return [(cause, key, fact) for key, fact in found]

    async def _report_alarms(self, alarms: list[tuple[Envelope, str, Alarm]]) -> None:
        self._alarms.forget_all_but(self._control.state.running)
        outputs, self._unread = self._unread, []
        facts = await asyncio.gather(*(self._complete(fact) for _, _, fact in alarms))
        for (cause, key, _), fact in zip(alarms, facts, strict=True):
            log.warning("alarm", extra=fields(alarm=type(fact).__name__, job=fact.job_id, why=fact.reason.message))
            event_id = derived_id(OWNER, key, 0)
            envelope = Envelope(id=event_id, source=OWNER, time_s=cause.time_s, event=fact, causation_id=cause.id)
            outputs.append(codec.outgoing(envelope))
        await self._commit(outputs, {})

    async def _complete(self, fact: Alarm) -> Alarm:
        """A stall with the stacks of the job's processes; other facts as they are."""
        state = self._control.state
        running = state.running.get(fact.job_id)
        if not isinstance(fact, JobStalled) or running is None:
            return fact
        return await with_stacks(fact, self._agents, [state.agent(node_id) for node_id in running.gpus])

    async def _commit(self, outputs: list[Outgoing], offsets: dict[Partition, int], *, anyway: bool = False) -> None:
        """`anyway`: also without anything to commit, to see whether the log takes it."""
        if not outputs and not offsets and not anyway:
            return
        async with self._committing:
            await self._committer.commit_numbered(outputs, offsets)
        self._stats.commits += 1
        self._stats.decisions += len(outputs)
