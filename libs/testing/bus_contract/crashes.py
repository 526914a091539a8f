"""Crashes between every two steps of consume, decide and append: nothing is lost and nothing happens twice."""

from __future__ import annotations

import asyncio

from libs.bus import codec
from libs.bus.port import Bus, Partition, Position
from libs.contracts.base import Topic
from libs.contracts.envelope import Envelope
from libs.contracts.placement import JobQueued
from libs.kernel.ids import request_id
from libs.kernel.replica import Replica
from libs.testing.bus_contract.log import CONTROL, PATIENCE_S, LogUnderTest, text, texts, until_end
from libs.testing.core_case import arrival
from libs.testing.toy import TOY

INPUTS = Partition(Topic.PROFILES, 0)
MOMENTS = 11
"""To open and go through two rounds has more moments than this has numbers."""


class Died(Exception):
    """The process is gone."""


class Life:
    """One process that takes each input and appends one output for it, until it has to die."""

    def __init__(self, log: LogUnderTest, dies_at: int | None = None, in_commit_after_s: float | None = None) -> None:
        self._log, self._dies_at, self._in_commit_after_s = log, dies_at, in_commit_after_s
        self._moment = 0
        self._committing: asyncio.Task[list[int]] | None = None

    async def live(self, until: int) -> None:
        """Work until the position is `until`, or to the end."""
        bus = await self._log.connect()
        try:
            await self._work(bus, until)
        except Died:
            await self._log.crash(bus)
            if self._committing is not None:
                self._committing.cancel()
                await asyncio.gather(self._committing, return_exceptions=True)
        else:
            await bus.close()

    async def _work(self, bus: Bus, until: int) -> None:
        self._step()
        session = await bus.open_session("worker")
        self._step()
        position = await session.position(INPUTS)
        self._step()
        reader = await bus.reader({INPUTS: position.next_offset})
        self._step()
        while position.next_offset < until:
            (message,) = await reader.next_batch(1, PATIENCE_S)
            self._step()
            output = text(Topic.CONTROL, "k", f"done {message.value.decode()}")
            position = Position(message.offset + 1, output.value.decode())
            self._step()
            self._committing = asyncio.create_task(session.commit([output], {INPUTS: position}))
            if self._in_commit_after_s is not None:
                await asyncio.sleep(self._in_commit_after_s)
                raise Died
            await self._committing
            self._step()
        await reader.close()
        await session.close()

    def _step(self) -> None:
        self._moment += 1
        if self._moment - 1 == self._dies_at:
            raise Died


class CrashContract:
    """A process may die at any moment; the next one finds all that it needs on the log."""

    async def test_a_crash_between_any_two_steps_loses_and_doubles_nothing(self, log: LogUnderTest) -> None:
        bus = await log.connect()
        for number in range(MOMENTS):
            await bus.append([text(Topic.PROFILES, "k", str(number))])
            await Life(log, dies_at=number).live(await bus.end_offset(INPUTS))
        await Life(log).live(await bus.end_offset(INPUTS))
        assert texts(await until_end(bus, CONTROL)) == [f"done {number}" for number in range(MOMENTS)]

    async def test_a_crash_within_a_commit_leaves_all_of_it_or_nothing(self, log: LogUnderTest) -> None:
        bus = await log.connect()
        moments_s = (0.0, 0.0001, 0.0003, 0.0005, 0.001, 0.002, 0.005, 0.02)
        for number, moment_s in enumerate(moments_s):
            await bus.append([text(Topic.PROFILES, "k", str(number))])
            await Life(log, in_commit_after_s=moment_s).live(await bus.end_offset(INPUTS))
        await Life(log).live(await bus.end_offset(INPUTS))
        assert texts(await until_end(bus, CONTROL)) == [f"done {number}" for number in range(len(moments_s))]

    async def test_inputs_that_come_twice_are_decided_once(self, log: LogUnderTest) -> None:
        """Duplicates are dropped by id where all adapters share it, in the replica; a replay derives the same ids."""
        bus = await log.connect()
        job = Envelope(id=request_id("test", "1"), source="gateway", time_s=1.0, event=arrival("a"))
        await bus.append([codec.outgoing(job), codec.outgoing(job)])
        decided: list[str] = []
        for _ in range(3):  # each starts from the log alone, as after a crash
            process = await log.connect()
            decided += await decide(process, await process.end_offset(CONTROL))
            await log.crash(process)
        records = [codec.record(message) for message in await until_end(bus, CONTROL)]
        assert [r.envelope.id for r in records] == [job.id, job.id, *decided]
        assert [type(r.envelope.event) for r in records[2:]] == [JobQueued]


async def decide(bus: Bus, until: int) -> list[str]:
    """Run the toy core over control up to an offset; returns the ids of what was decided anew."""
    session = await bus.open_session(TOY.name)
    committed = (await session.position(CONTROL)).next_offset
    replica = Replica(TOY)
    decided: list[str] = []
    for message in (m for m in await until_end(bus, CONTROL) if m.offset < until):
        outputs = replica.step(codec.record(message))
        if message.offset >= committed:
            await session.commit([codec.outgoing(o) for o in outputs], {CONTROL: Position(message.offset + 1)})
            decided += [output.id for output in outputs]
    return decided
