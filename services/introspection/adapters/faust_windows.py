"""The windows shell on Kafka: a Faust app that folds telemetry with the same functions as the embedded one.

Faust is asked for what it does well, the sharing of partitions among instances, and for nothing else. It is
at-least-once, its tables can hang or lose windows when partitions move, and it has no event for a closed
window: so there are no tables. A record is acknowledged when no open window needs it any more; after a crash
or a move of the partition the open windows are built again from what was not acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from tempfile import TemporaryDirectory
from typing import Any

import faust
from aiokafka import TopicPartition
from faust.types import TP, EventT

from libs.bus.kafka import KafkaBus
from libs.bus.kafka.connection import Connection
from libs.bus.kafka.positions import committed, set_positions
from libs.bus.port import BusUnavailable, Message, Outgoing, Partition, Position
from libs.contracts.base import Topic
from libs.runtime.clock import Clock
from libs.runtime.log import fields
from libs.runtime.patience import Patience
from libs.runtime.resuming import resumed
from services.introspection.adapters.telemetry import TelemetryFold
from services.introspection.core.windows import Rules

log = logging.getLogger(__name__)

TICK_EVERY_S = 0.5
MEMBERSHIP_EVERY_S = 2.0
SESSION_TIMEOUT_S = 10.0
"""A killed instance's partitions are given to another after so long."""


class FaustWindows:
    """Runs the Faust app; starts it anew when it fails, as it does when the brokers are away for long."""

    def __init__(self, url: str, cell: str, rules: Rules, clock: Clock) -> None:
        """`url`: the bus, `kafka://…`."""
        self._url, self._cell, self._rules, self._clock = url, cell, rules, clock
        self._connection = Connection.parse(url)

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set.

        Raises:
            StopRequested: asked to stop while the brokers could not be reached.
        """
        patience = Patience(stop)
        while not stop.is_set():
            life = Life(self._connection, self._cell, self._rules, self._clock)
            try:
                await self._set_missing_positions(patience)
                await life.run(stop)
                patience.over()
            except Exception as error:  # whatever a stream framework may raise: the next life starts clean
                await patience.wait("fold telemetry", BusUnavailable(f"Faust has failed: {error!r}"))

    async def _set_missing_positions(self, patience: Patience) -> None:
        """Without a position Faust would fold all that telemetry holds: have it begin at what is recent."""
        group = group_of(self._cell)
        bus = await KafkaBus.connect(self._url, self._cell)
        try:
            places = {
                p: TopicPartition(f"{self._cell}.{p.topic}", p.index) for p in await bus.partitions(Topic.TELEMETRY)
            }
            found = {p: await committed(self._connection, group, place) for p, place in places.items()}
            missing = {p: position for p, position in found.items() if position == Position(0)}
            starts = await resumed(bus, missing, patience)
        finally:
            await bus.close()
        wanted = {places[p]: offset for p, offset in starts.items() if offset > 0}
        if wanted and not await set_positions(self._connection, group, wanted):
            log.warning("other instances fold telemetry already", extra=fields(group=group))


def group_of(cell: str) -> str:
    """The consumer group that shares out the partitions of a cell's telemetry among its members."""
    return f"{cell}-introspection-windows"


class Life:
    """One run of the app, from joining its group to its stop or failure."""

    def __init__(self, connection: Connection, cell: str, rules: Rules, clock: Clock) -> None:
        self._cell, self._clock = cell, clock
        self._fold = TelemetryFold(rules)
        self._unacknowledged: dict[int, deque[EventT[bytes]]] = {}
        self._emitting = asyncio.Lock()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._folder = TemporaryDirectory(prefix="sanjaya-faust-")
        self.app = _app(connection, cell, self._folder.name)
        self._topics = {topic: self._topic(topic) for topic in (Topic.TELEMETRY, Topic.PROFILES, Topic.DEADLETTER)}
        self.app.agent(self._topics[Topic.TELEMETRY], name="fold")(self._read)
        self.app.timer(interval=TICK_EVERY_S)(self._tick)
        revoked: Any = self.app.on_partitions_revoked
        revoked.connect(self._revoked, weak=False)

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; raises what the app failed with."""
        asked, watching = asyncio.ensure_future(stop.wait()), asyncio.ensure_future(self._watch_membership())
        life = asyncio.ensure_future(self._live())
        try:
            ends: list[asyncio.Future[Any]] = [asked, life, self._failed]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if life.done():
                life.result()
        finally:
            for task in (asked, watching, life):
                task.cancel()
            await self.app.stop()
            self._folder.cleanup()
        if self._failed.done():
            self._failed.result()
        if self.app.crash_reason is not None:
            raise self.app.crash_reason

    async def _live(self) -> None:
        """Until the app ends by itself. It has not started before it has its partitions."""
        await self.app.start()
        log.info("windows started on Faust", extra=fields(group=self.app.conf.id))
        await self.app.wait_until_stopped()

    async def _read(self, stream: Any) -> None:
        async for event in stream.noack().events():
            message = self._message(event)
            self._unacknowledged.setdefault(message.partition.index, deque()).append(event)
            outputs = self._fold.take(message, self._clock.now_s())
            await self._emit(outputs, [message.partition.index])

    async def _tick(self) -> None:
        outputs = self._fold.tick(self._clock.now_s())
        if outputs:
            await self._emit(outputs, list(self._unacknowledged))

    async def _watch_membership(self) -> None:
        """Fail when the consumer has left its group for good.

        aiokafka keeps such an error until it is asked for, and Faust does not ask: nothing would be read any more.
        """
        while not self._failed.done():
            await asyncio.sleep(MEMBERSHIP_EVERY_S)
            consumer: Any = self.app.consumer
            thread = consumer._thread
            if thread._consumer is None:
                continue

            async def check(member: Any = thread._consumer) -> None:
                member._coordinator.check_errors()

            try:
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(check(), thread.thread_loop))
            except Exception as error:
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)

    async def _revoked(self, app: Any, revoked: set[TP], *_: Any, **__: Any) -> None:
        for place in revoked:
            if place.topic == f"{self._cell}.{Topic.TELEMETRY}":
                self._fold.folding.drop(place.partition)
                self._unacknowledged.pop(place.partition, None)

    async def _emit(self, outputs: list[Outgoing], partitions: Iterable[int]) -> None:
        """Append, wait until the brokers have it, and only then let go of the records behind it.

        What could not be appended is out of the fold already: then nothing is acknowledged any more, and the
        next life folds it again.
        """
        async with self._emitting:
            if self._failed.done():
                return
            try:
                for confirmation in [await self._send(output) for output in outputs]:
                    await confirmation
            except Exception as error:
                self._fail(error)
                return
            for partition in partitions:
                self._acknowledge(partition)

    async def _send(self, output: Outgoing) -> Any:
        return await self._topics[output.topic].send(
            key=output.key.encode(), value=output.value, headers=list(output.headers)
        )

    def _acknowledge(self, partition: int) -> None:
        waiting = self._unacknowledged.get(partition)
        if not waiting:
            return
        needed = self._fold.folding.position(partition, waiting[-1].message.offset + 1)
        while waiting and waiting[0].message.offset < needed:
            waiting.popleft().ack()

    def _message(self, event: EventT[bytes]) -> Message:
        raw = event.message
        return Message(
            partition=Partition(Topic.TELEMETRY, raw.partition),
            offset=raw.offset,
            key=(raw.key or b"").decode(errors="replace"),
            headers=list(dict(raw.headers or ()).items()),
            value=raw.value or b"",
            appended_at_s=raw.timestamp,
        )

    def _topic(self, topic: Topic) -> Any:
        return self.app.topic(
            f"{self._cell}.{topic}",
            key_type=bytes,
            value_type=bytes,
            key_serializer="raw",
            value_serializer="raw",
            allow_empty=True,
        )


def _app(connection: Connection, cell: str, folder: str) -> faust.App:
    """Nothing of it is kept, but Faust makes its folder in any case: not in the current directory."""
    return faust.App(
        group_of(cell),
        broker=[f"kafka://{server}" for server in connection.servers.split(",")],
        broker_credentials=_credentials(connection.security),
        broker_session_timeout=SESSION_TIMEOUT_S,
        broker_heartbeat_interval=SESSION_TIMEOUT_S / 4,
        consumer_auto_offset_reset="earliest",
        processing_guarantee="at_least_once",
        store="memory://",
        datadir=folder,
        stream_wait_empty=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
    )


def _credentials(security: dict[str, Any]) -> Any:
    """The bus URL's security options in Faust's words."""
    protocol = security.get("security_protocol", "PLAINTEXT")
    tls = security.get("ssl_context")
    if protocol == "PLAINTEXT":
        return None
    if protocol == "SSL":
        return faust.SSLCredentials(context=tls)
    mechanism = security.get("sasl_mechanism", "PLAIN")
    if mechanism == "GSSAPI":
        return faust.GSSAPICredentials(
            kerberos_service_name=security.get("sasl_kerberos_service_name", "kafka"),
            kerberos_domain_name=security.get("sasl_kerberos_domain_name"),
            ssl_context=tls,
        )
    return faust.SASLCredentials(
        username=security.get("sasl_plain_username"),
        password=security.get("sasl_plain_password"),
        mechanism=mechanism,
        ssl_context=tls,
    )
