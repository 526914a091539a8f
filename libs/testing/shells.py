"""Runs shells in a test: on any bus, with a clock in the hand, through crashes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from libs.bus import codec
from libs.bus.port import Bus, Message
from libs.contracts.base import Event, Topic
from libs.contracts.envelope import Envelope
from libs.inspect.refusing import refusing
from libs.kernel.ids import request_id
from libs.kernel.replica import Replica
from libs.kernel.service import Service
from libs.runtime.clock import ManualClock
from libs.runtime.handled import Tracer
from libs.runtime.recovery import CONTROL
from libs.runtime.shell import UNNAMED, Epoch, Options, Shell
from libs.runtime.snapshots import Snapshots
from libs.testing.faults import Crash, FaultyBus
from libs.testing.forgetful import dated

CAREFUL = Options(batch_records=2, commit_every_records=1, snapshot_every_records=3, check_every_records=1, strict=True)
"""Small steps, everything checked."""


class ShellCase:
    """One service's shell on a bus that can break."""

    def __init__(
        self,
        service: Service[Any],
        bus: FaultyBus,
        snapshots: Snapshots | None = None,
        options: Options = CAREFUL,
        tracer: Tracer | None = None,
        epoch: Epoch = UNNAMED,
    ) -> None:
        self.service, self.bus, self.snapshots, self.options, self.tracer = service, bus, snapshots, options, tracer
        self.epoch = epoch
        self.clock = bus.clock = ManualClock()
        self.lives = 0
        self.shell: Shell
        self.given = 0

    async def give(self, *events: Event) -> None:
        """Append facts from outside, at the clock's time."""
        for event in events:
            self.given += 1
            envelope = Envelope(
                id=request_id("test", str(self.given)), source="test", time_s=self.clock.now_s(), event=event
            )
            await self.bus.append([codec.outgoing(envelope)])

    async def run_until(self, done: Callable[[], bool], *, stop_after: bool = True) -> None:
        """Run the shell until a condition on its commits holds; start it anew after every injected crash."""
        while True:
            self.bus.faults.revive()
            self.lives += 1
            stop = asyncio.Event()
            self.shell = Shell(
                self.service,
                self.bus,
                snapshots=self.snapshots,
                clock=self.clock,
                options=self.options,
                tracer=self.tracer,
                epoch=self.epoch,
            )
            running = asyncio.create_task(self.shell.run(stop))
            waiting = asyncio.create_task(self.bus.until(done))
            await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
            if waiting.done() and stop_after:
                stop.set()
            waiting.cancel()
            try:
                await running
                return
            except Crash:
                if done():
                    return

    async def run_to_end(self) -> None:
        """Run until everything on control is handled and committed."""
        await self._run_to(await self.bus.end_offset(CONTROL))
        while self.position < (end := await self.bus.end_offset(CONTROL)):
            await self._run_to(end)

    async def _run_to(self, end: int) -> None:
        await self.run_until(lambda: self.position >= end)

    @property
    def position(self) -> int:
        """The committed position, as far as this bus has seen it."""
        position = self.bus.positions.get(self.service.name, {}).get(CONTROL)
        return position.next_offset if position else 0


async def messages(bus: Bus, topic: Topic) -> list[Message]:
    """Everything that a topic holds now, partition by partition."""
    ends = {partition: await bus.end_offset(partition) for partition in await bus.partitions(topic)}
    left = {partition for partition, end in ends.items() if end > 0}
    found: list[Message] = []
    if left:
        reader = await bus.reader(dict.fromkeys(sorted(left, key=lambda partition: partition.index), 0))
        while left:
            batch = await reader.next_batch(1000, 1.0)
            found += batch
            left -= {message.partition for message in batch if message.offset + 1 >= ends[message.partition]}
        await reader.close()
    return sorted(found, key=lambda message: (message.partition.index, message.offset))


async def ids(bus: Bus, topic: Topic) -> list[str]:
    """The ids of all events of a topic, in order."""
    return [codec.record(message).envelope.id for message in await messages(bus, topic)]


async def replayed(service: Service[Any], bus: Bus) -> Replica[Any]:
    """The core after a full replay of the log of a `ShellCase`, on which all are dated by the clock in its hand."""
    records = [codec.record(dated(message)) for message in await messages(bus, Topic.CONTROL)]
    replica = Replica(service, refusing(lambda: records))
    for record in records:
        replica.step(record)
    return replica
