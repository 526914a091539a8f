"""Placement starts by other rules and without a snapshot: the books are those of the log, and no task is stopped."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from libs.bus import codec
from libs.bus.connect import connect
from libs.bus.embedded import EmbeddedBus
from libs.bus.port import TopicLayout
from libs.contracts.admission import JobAdmitted
from libs.contracts.agent import JobStarted, NodeJoined
from libs.contracts.base import Event, Topic
from libs.contracts.cluster import TaskRef
from libs.contracts.gateway import SettingChanged
from libs.contracts.placement import JobPlaced, LaunchTask
from libs.contracts.quota import QuotaGranted
from libs.contracts.reasons import Reason
from libs.contracts.runtime import ServiceStarted
from libs.runtime.recovery import CONTROL
from libs.runtime.snapshots import Snapshots
from libs.testing.core_case import arrival, node
from libs.testing.processes import ROOT, Processes, give, live, until
from libs.testing.shells import messages
from tests.e2e.second_tree import TIE_BREAK, environment, second_tree

WIDTHS = {"a": 2, "b": 2, "c": 1, "d": 1, "e": 2, "f": 1, "g": 1, "h": 2}
"""GPUs of each job: the first four fill one server of six, the others another one."""
NODES = {"n1": 6, "n2": 6}
PLACEMENT = ("libs.runtime", "placement")
WHY = Reason(code="Test", message="the test says so")

Holders = dict[tuple[str, int], str]
"""{(node id, GPU): job id}."""


class PlacementCase:
    """Placement as a process of its own, of one tree or another, on an embedded log."""

    def __init__(self, folder: Path, bus: EmbeddedBus, processes: Processes) -> None:
        self.folder, self.bus, self._processes = folder, bus, processes
        self._given = 0

    async def give(self, *events: Event) -> None:
        """Append facts and decisions of others."""
        await give(self.bus, self._given, events)
        self._given += len(events)

    async def runs(self, tree: Path, *, before_it_ends: tuple[Event, ...] = ()) -> None:
        """Start it, append these, wait until all of the log is handled, and end it in order."""
        process = await self._processes.start(*PLACEMENT, **environment(tree))
        await live(process)
        await self.give(*before_it_ends)
        await until(self._is_done, 120.0)
        process.terminate()
        await process.communicate()
        assert process.returncode == 0

    async def _is_done(self) -> bool:
        position = await self.bus.committed("placement", CONTROL)
        return position.next_offset == await self.bus.end_offset(CONTROL)

    async def said(self, topic: Topic) -> list[Event]:
        """Everything on a topic."""
        return [codec.record(message).envelope.event for message in await messages(self.bus, topic)]

    async def by_the_log(self) -> Holders:
        """Of each GPU the job that was placed there."""
        placed = [event for event in await self.said(Topic.CONTROL) if isinstance(event, JobPlaced)]
        return {(task.node_id, i): event.job_id for event in placed for task in event.gang for i in task.gpu_indices}

    async def by_the_process(self) -> Holders:
        """Of each GPU the job that holds it in the state that the process has left when it ended."""
        [first] = (await messages(self.bus, Topic.CONTROL))[:1]
        end = await self.bus.end_offset(CONTROL)
        snapshots = Snapshots(self.database, self.bus.cell)
        try:
            newest = snapshots.load("placement", dict(first.headers)["ce_id"].decode(), end)[0].open()
        finally:
            snapshots.close()
        assert newest.next_offset == end
        found = {}
        for name, server in msgspec.json.decode(newest.state)["nodes"].items():
            for index, gpu in enumerate(server["gpus"]):
                [found[name, index]] = gpu["holders"]
        return found

    @property
    def database(self) -> str:
        return f"sqlite:///{self.folder / 'read_models.db'}"

    def forget_snapshots(self) -> None:
        connection = sqlite3.connect(self.folder / "read_models.db")
        with connection:
            assert connection.execute("DELETE FROM core_snapshots").rowcount > 0
        connection.close()


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return second_tree(tmp_path_factory.mktemp("other") / "tree", [TIE_BREAK])


@pytest.fixture
async def case(tmp_path: Path) -> AsyncIterator[PlacementCase]:
    url = f"sqlite:///{tmp_path / 'log.db'}"
    bus = await connect(url, "local")
    assert isinstance(bus, EmbeddedBus)
    await bus.create_topics(TopicLayout())
    processes = Processes({"SANJAYA_STATE_DIR": str(tmp_path), "SANJAYA_BUS": url, "SANJAYA_CHECK_EVERY_RECORDS": "1"})
    yield PlacementCase(tmp_path, bus, processes)
    await processes.kill_all()
    await bus.close()


def jobs() -> list[Event]:
    """Twelve GPUs join, and jobs that want them all may be placed."""
    # The facts are of no time; the process has today's.
    patient = SettingChanged(service="placement", name="start_limit_s", value=1e12, requested_by="test")
    said: list[Event] = [patient, *(node(name, gpus) for name, gpus in NODES.items())]
    for name, gpus in WIDTHS.items():
        said += [
            arrival(name, gpus),
            JobAdmitted(job_id=name, reason=WHY),
            QuotaGranted(job_id=name, attempt=1, tenant="default", gpus=gpus, reason=WHY),
        ]
    return said


def started(holders: Holders) -> list[Event]:
    nodes = {job: name for (name, _), job in holders.items()}
    return [JobStarted(job_id=job, attempt=1, node_id=name, pid=1) for job, name in nodes.items()]


def rejoined(holders: Holders) -> tuple[NodeJoined, ...]:
    """The agents start anew and have the tasks that were started on their nodes."""
    there = {name: [job for (at, _), job in holders.items() if at == name] for name in NODES}
    return tuple(
        node(
            name,
            gpus,
            incarnation=2,
            tasks=[TaskRef(job_id=job, attempt=1) for job in dict.fromkeys(there[name])],
        )
        for name, gpus in NODES.items()
    )


async def test_by_a_broken_tie_break_all_gpus_would_have_other_holders(case: PlacementCase, other: Path):
    await case.give(*jobs())
    await case.runs(other)
    elsewhere = await case.by_the_log()
    assert len(elsewhere) == sum(NODES.values())
    assert [gpu for gpu, job in elsewhere.items() if expected()[gpu] == job] == []


async def test_without_a_snapshot_each_gpu_has_the_holder_that_the_log_says(case: PlacementCase, other: Path):
    await case.give(*jobs())
    await case.runs(ROOT)
    holders = await case.by_the_log()
    assert holders == expected() == await case.by_the_process()
    await case.give(*started(holders))
    await case.runs(ROOT)
    case.forget_snapshots()

    await case.runs(other, before_it_ends=rejoined(holders))
    assert await case.by_the_process() == holders
    orders = [(type(order), getattr(order, "job_id", "")) for order in await case.said(Topic.ORDERS)]
    assert sorted(orders, key=lambda order: order[1]) == [(LaunchTask, job) for job in WIDTHS], "none was stopped"
    epochs = [event.rules for event in await case.said(Topic.CONTROL) if isinstance(event, ServiceStarted)]
    assert len(epochs) == len(set(epochs)) == 2


def expected() -> Holders:
    """Servers are filled one by one, the first name first."""
    holding = [job for job, gpus in WIDTHS.items() for _ in range(gpus)]
    places = [(name, index) for name, gpus in NODES.items() for index in range(gpus)]
    return dict(zip(places, holding, strict=True))
