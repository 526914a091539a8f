"""A cell starts, after the broker has forgotten its positions, where its own records say: nothing is issued again.

Positions on Kafka are kept in groups without members. A broker forgets such a position `offsets.retention.minutes`
after its last commit, a running service's too, and an operator can delete the group by hand.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.admin import DeleteGroupsRequest

from libs.bus import codec
from libs.bus.kafka import KafkaBus
from libs.bus.local_broker import LocalBroker
from libs.bus.port import Bus, Position, TopicLayout
from libs.contracts.agent import JobExited, JobStarted
from libs.contracts.base import Event, Topic, event_classes
from libs.contracts.envelope import Envelope
from libs.contracts.placement import JobSucceeded, LaunchTask
from libs.kernel.ids import request_id
from libs.runtime.clock import SteadyClock
from libs.runtime.recovery import CONTROL
from libs.runtime.shell import Options, Shell
from libs.runtime.snapshots import Snapshots
from libs.runtime.stats import Phase, Stats
from libs.runtime.tasks import all_or_none
from libs.testing.core_case import arrival, node
from libs.testing.processes import until
from libs.testing.shells import messages
from services.roster import SERVICES

FORGOTTEN_AFTER_MINUTES = 1
FORGOTTEN_WITHIN_S = 240.0
WORK_WITHIN_S = 120.0

SHORT = [f"short-{number}" for number in range(12)]
LONG = [f"long-{number}" for number in range(2)]
"""They still run while the cell rests."""
LATER = "later"
"""Is submitted when the cell is back."""

OF_SERVICES = {cls.wire_type for cls in event_classes() if cls.__module__ == "libs.contracts.runtime"}
"""Starts and timers: what a start may add to the log."""

OFTEN = Options(commit_every_s=0.2, snapshot_every_records=20, check_every_records=50, strict=True)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A broker that forgets positions after a minute, and looks for them every second."""
    properties = {
        "offsets.retention.minutes": str(FORGOTTEN_AFTER_MINUTES),
        "offsets.retention.check.interval.ms": "1000",
    }
    with LocalBroker(tmp_path_factory.mktemp("kafka"), properties=properties) as broker:
        yield broker


class Cell:
    """Every core's shell in this process, on one broker, and the test in the place of the nodes' agents."""

    def __init__(self, name: str, url: str, snapshots: Path | None) -> None:
        """`snapshots`: a folder for them; None: every start reads the whole log."""
        self.name, self._url, self._snapshots = name, url, snapshots
        self._told = 0
        self._acknowledged: set[tuple[str, int]] = set()

    async def create(self) -> None:
        """Topics, two nodes."""
        async with self.bus() as bus:
            await bus.create_topics(TopicLayout())
            await self.tell(bus, node("n1", 4), node("n2", 4))

    @asynccontextmanager
    async def bus(self) -> AsyncIterator[KafkaBus]:
        bus = await KafkaBus.connect(self._url, self.name)
        try:
            yield bus
        finally:
            await bus.close()

    async def tell(self, bus: Bus, *events: Event) -> None:
        """Append facts from outside."""
        for event in events:
            self._told += 1
            envelope = Envelope(
                id=request_id(self.name, str(self._told)),
                source="test",
                time_s=float(self._told),
                event=event,
            )
            await bus.append([codec.outgoing(envelope)])

    async def work(self, jobs: list[str], finished: list[str]) -> None:
        """Submit jobs, run every shell until they have begun and all is handled, and stop the shells in order.

        Args:
            jobs: what is submitted.
            finished: what must have succeeded by then.
        """
        async with AsyncExitStack() as stack:
            bus = await stack.enter_async_context(self.bus())
            await self.tell(bus, *(arrival(job) for job in jobs))
            snapshots = None
            if self._snapshots is not None:
                snapshots = stack.enter_context(closing(Snapshots(f"sqlite:///{self._snapshots}/s.db", self.name)))
            stop = asyncio.Event()
            shells = [
                Shell(service, bus, snapshots=snapshots, clock=SteadyClock(), options=OFTEN, stats=Stats(service.name))
                for service in SERVICES
            ]
            running = asyncio.ensure_future(all_or_none(stop, *(shell.run(stop) for shell in shells)))

            async def done() -> bool:
                assert not running.done(), running.result()
                await self._carry_out(bus)
                facts = await self.events(bus, Topic.CONTROL)
                started = {fact.job_id for fact in facts if isinstance(fact, JobStarted)}
                succeeded = {fact.job_id for fact in facts if isinstance(fact, JobSucceeded)}
                if not (started >= set(jobs) and succeeded >= set(finished)):
                    return False
                end = await bus.end_offset(CONTROL)
                return all(s.stats.phase is Phase.LIVE and s.stats.next_offset >= end for s in shells)

            await until(done, WORK_WITHIN_S)
            stop.set()
            await running

    async def _carry_out(self, bus: Bus) -> None:
        """Start each task that was ordered, and end it unless it is a long one. An order that comes again is idle."""
        for event in await self.events(bus, Topic.ORDERS):
            if isinstance(event, LaunchTask) and (event.job_id, event.attempt) not in self._acknowledged:
                self._acknowledged.add((event.job_id, event.attempt))
                task = {"job_id": event.job_id, "attempt": event.attempt, "node_id": event.node_id}
                await self.tell(bus, JobStarted(**task, pid=1))
                if event.job_id not in LONG:
                    await self.tell(bus, JobExited(**task, exit_code=0, signal=None, outcome="exited"))

    async def events(self, bus: Bus, topic: Topic) -> list[Event]:
        return [envelope.event for envelope in await envelopes(bus, topic)]

    async def issued(self) -> Counter[str]:
        """{topic and type: how many records}, without those of services' starts and timers and of the later job.

        Fails when a record stands on the log twice: what is decided again has the id that it had.
        """
        found: Counter[str] = Counter()
        again: Counter[str] = Counter()
        async with self.bus() as bus:
            for topic in (Topic.CONTROL, Topic.ORDERS):
                seen: set[str] = set()
                for envelope in await envelopes(bus, topic):
                    kind = f"{topic.value}: {envelope.event.wire_type}"
                    if envelope.id in seen:
                        again[kind] += 1
                    seen.add(envelope.id)
                    later = getattr(envelope.event, "job_id", "") == LATER
                    if envelope.event.wire_type not in OF_SERVICES and not later:
                        found[kind] += 1
        assert not again, f"{self.name}: issued again: {dict(again)}"
        return found

    async def positions(self, bus: KafkaBus) -> dict[str, Position]:
        """Where the broker thinks that the services are."""
        return {service.name: await bus.committed(service.name, CONTROL) for service in SERVICES}

    async def until_forgotten(self) -> None:
        """Rest until the broker has no position of any service."""

        async def forgotten() -> bool:
            return all(position == Position(0) for position in (await self.positions(bus)).values())

        async with self.bus() as bus:
            await until(forgotten, FORGOTTEN_WITHIN_S)


async def envelopes(bus: Bus, topic: Topic) -> list[Envelope]:
    return [codec.record(message).envelope for message in await messages(bus, topic)]


async def worked(cell: Cell) -> Counter[str]:
    """A cell that has handled its jobs and rests; what it has issued."""
    await cell.create()
    await cell.work([*SHORT, *LONG], finished=SHORT)
    before = await cell.issued()
    assert before["orders: task.launch.v1"] == len(SHORT) + len(LONG), before
    async with cell.bus() as bus:
        assert all(position.next_offset > 0 for position in (await cell.positions(bus)).values())
    return before


async def delete_groups(broker: LocalBroker, groups: list[str]) -> None:
    """What `kafka-consumer-groups.sh --delete` does."""
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    client = AIOKafkaClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    await client.bootstrap()
    try:
        for group in groups:
            answer = await client.send(await admin.find_coordinator(group), DeleteGroupsRequest([group]))
            assert [code for _, code in answer.results] == [0], (group, answer)
    finally:
        await client.close()
        await admin.close()


def cells(broker: LocalBroker, name: str, tmp_path: Path) -> list[Cell]:
    """One that starts from its snapshots, one that reads the whole log."""
    url = f"kafka://{broker.bootstrap}"
    return [Cell(f"{name}-snapshots", url, tmp_path), Cell(f"{name}-none", url, None)]


async def test_a_cell_that_rested_past_the_retention_of_positions_issues_nothing_again(
    broker: LocalBroker, tmp_path: Path
):
    resting = cells(broker, "expired", tmp_path)
    before = [await worked(cell) for cell in resting]
    for cell in resting:
        await cell.until_forgotten()
    for cell, issued in zip(resting, before, strict=True):
        await cell.work([LATER], finished=[LATER])
        assert await cell.issued() == issued, cell.name


async def test_a_cell_with_groups_deleted_by_hand_issues_nothing_again(broker: LocalBroker, tmp_path: Path):
    for cell in cells(broker, "deleted", tmp_path):
        issued = await worked(cell)
        await delete_groups(broker, [f"{cell.name}.{service.name}" for service in SERVICES])
        await cell.until_forgotten()
        await cell.work([LATER], finished=[LATER])
        assert await cell.issued() == issued, cell.name


async def test_a_cell_with_its_positions_issues_nothing_again(broker: LocalBroker, tmp_path: Path):
    """The same without a loss: what the other tests find is due to the loss alone."""
    for cell in cells(broker, "kept", tmp_path):
        issued = await worked(cell)
        await cell.work([LATER], finished=[LATER])
        assert await cell.issued() == issued, cell.name
