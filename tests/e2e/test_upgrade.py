"""A cell is upgraded under running jobs: each process is exchanged for one of another tree, and no task notices.

The other tree breaks ties otherwise, sorts rounds otherwise, has a field more in a state, an event and a table, a new
version of an event and another layout of the page (`second_tree.py`). What the first tree has decided stands; the
second decides from there on.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from torch_agent.harness.page import HEAD
from torch_agent.harness.page import VERSION as PAGE_VERSION

from libs.bus import codec
from libs.bus.local_broker.network import free_port
from libs.cli.cell.plan import Command
from libs.client import Client, ClientError
from libs.contracts.agent import JobStarted, JobSuspended, NodeJoined
from libs.contracts.base import Event, Topic
from libs.contracts.envelope import Record
from libs.contracts.placement import JobPlaced, LaunchTask, StopTask, TimeSliceStarted
from libs.contracts.runtime import ServiceStarted
from libs.inspect.conservation import conservation
from libs.inspect.differences import Kind
from libs.inspect.sources import open_log
from libs.inspect.verify import verify
from libs.testing.leftovers import nothing_left_of
from libs.testing.thorough import cases
from services.roster import NAMES, SERVICES
from tests.e2e.second_tree import AGENT_VERSION, NEWER_EVENT, TIE, add_revision, second_tree
from tests.e2e.test_rounds import wait_until
from tests.e2e.upgrading import (
    SCRIPT,
    UpgradedCell,
    UpgradedPlan,
    by_hand,
    ended_by_force,
    holders,
    sanjaya,
    written,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

AGENTS = ("agent-n1", "agent-n2")
BEFORE, AFTER = 9, 3
"""Jobs that are submitted before and after the upgrade."""
SUSPENSIONS = 4
"""Before the upgrade, between services and agents, and after it."""
UNKNOWN = f"{NEWER_EVENT} was written by a newer version than this one"
IN_ORDER = (
    *("sweeps", "failure_analysis", "migration", "introspection", "quota", "admission", "placement"),
    *("projection", "gateway"),
)
"""The services, as `infra/upgrading.md` has them upgraded; agents follow."""


class Upgrade:
    """The cell, the jobs on it, and what was seen of their processes."""

    def __init__(self, cell: UpgradedCell, client: Client, folder: Path) -> None:
        self.cell, self.client, self.folder = cell, client, folder
        self.jobs: list[str] = []
        self.seen: dict[int, float] = {}
        """{pid: when it was started} of the tasks that were there before the upgrade."""
        self.left: dict[str, Any] = {}
        """Placement's state when its process of the first tree ended."""

    def submits(self, count: int) -> None:
        """Jobs that train until they are told to end."""
        for seed in range(len(self.jobs), len(self.jobs) + count):
            command = [sys.executable, str(self.folder / "train.py"), str(self.folder), str(seed)]
            self.jobs.append(str(self.client.submit({"command": command, "name": f"job-{seed}"})["id"]))

    def changes_places(self) -> None:
        """Wait until jobs of before the upgrade have been suspended some more times."""
        seen = 0

        def suspensions() -> int:
            return sum(event["data"]["job_id"] in self.jobs[:BEFORE] for event in self.events(JobSuspended))

        def look() -> bool:
            nonlocal seen
            seen = suspensions()
            return True

        self.until(look)
        self.until(lambda: suspensions() >= seen + SUSPENSIONS)

    def all_have_started(self) -> None:
        """Wait for that, and note their processes."""
        self.until(lambda: len(self.events(JobStarted)) == len(self.jobs))
        pids = [int(event["data"]["pid"]) for event in self.events(JobStarted)]
        self.seen = {pid: psutil.Process(pid).create_time() for pid in pids}

    def services_become(self, commands: dict[str, Command]) -> None:
        """One after the other."""
        assert {*IN_ORDER, *AGENTS} == set(commands)
        for name in IN_ORDER:
            left = self.cell.exchange(commands[name])
            if name == "placement":
                assert left is not None
                self.left = left
        self.until(lambda: self._epochs("placement") == 2)

    def agents_become(self, commands: dict[str, Command]) -> None:
        """All of them; their tasks go on."""
        for name in AGENTS:
            self.cell.exchange(commands[name])
        self.until(lambda: {node["agent_version"] for node in self.client.nodes()} == {AGENT_VERSION})

    def pages(self) -> set[int]:
        """Versions of the pages of all tasks."""
        found = (self.folder / "cell" / "nodes").rglob("*.page")
        return {HEAD.unpack_from(path.read_bytes())[1] for path in found}

    def ends(self) -> None:
        """Let all jobs end, and change a setting once more when they have."""
        (self.folder / "end").touch()
        self.until(lambda: Counter(job["state"] for job in self.client.jobs()) == {"SUCCEEDED": len(self.jobs)})
        self.client.set_setting("placement", "stop_grace_s", 5)

    def first_tree_refuses(self, commands: dict[str, Command]) -> None:
        """It cannot read what the second has written, and says so."""
        self.cell.exchange(commands["placement"])
        wait_until(lambda: UNKNOWN in self.cell.children["placement"].last_words())

    def events(self, cls: type[Event]) -> list[dict[str, Any]]:
        """Those of a type that are on the log."""
        return list(self.client.events(type=cls.wire_type))

    def until(self, holds: Callable[[], object]) -> None:
        """Wait; the gateway may be away."""

        def patiently() -> object:
            try:
                return holds()
            except ClientError:
                return False

        wait_until(patiently)

    def _epochs(self, service: str) -> int:
        return sum(event["data"]["service"] == service for event in self.events(ServiceStarted))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = second_tree(tmp_path_factory.mktemp("other") / "tree")
    add_revision(tree)
    return tree


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Of the jobs and the cell; tasks that a failed test leaves behind end with it."""
    yield tmp_path
    ended_by_force(tmp_path)


@pytest.mark.parametrize(
    ("policy", "bus"),
    cases(
        ("gandiva", "embedded"),
        ("max_min_fairness", "kafka"),
        thorough=(("gandiva", "kafka"), ("max_min_fairness", "embedded")),
    ),
)
def test_tasks_go_on_while_every_process_is_exchanged_for_one_of_another_tree(
    policy: str, bus: str, folder: Path, other: Path
):
    (folder / "train.py").write_text(SCRIPT)
    plan = UpgradedPlan(
        state_dir=folder / "cell",
        agents=len(AGENTS),
        gpus_per_agent=2,
        gateway_port=free_port(),
        kafka="" if bus == "kafka" else None,
        settings={"SANJAYA_CHECK_EVERY_RECORDS": "1"},
    )
    with UpgradedCell(plan) as cell, Client(plan.gateway_url) as client:
        first, second = cell.plan.commands(), cell.plan.of(other).commands()
        upgrade = Upgrade(cell, client, folder)
        for name in ("slice_s", "round_s"):
            client.set_setting("placement", name, 2)
        client.set_policy(policy)
        upgrade.submits(BEFORE)
        upgrade.all_have_started()
        upgrade.changes_places()
        upgrade.services_become(second)
        upgrade.changes_places()
        upgrade.agents_become(second)
        upgrade.submits(AFTER)
        upgrade.until(lambda: upgrade.pages() == {PAGE_VERSION, PAGE_VERSION + 1})
        upgrade.changes_places()
        assert upgrade.seen == {pid: psutil.Process(pid).create_time() for pid in upgrade.seen}
        upgrade.ends()
        log = folder / "log.jsonl"
        log.write_bytes(b"".join(client.export()))
        upgrade.first_tree_refuses(first)
    assert nothing_left_of(folder) == []
    losses = written(folder)
    assert len(losses) == BEFORE + AFTER
    assert losses == by_hand(folder, losses)
    check_log(log, upgrade)
    check_forms(log, folder / "cell" / "read_models.db", upgrade)
    check_trees(log, other, upgrade)


def check_log(path: Path, upgrade: Upgrade) -> None:
    """Each job was placed, launched and started once, none was stopped; both trees have let them take turns."""
    said = records(path)
    assert conservation(record for record in said if record.topic is Topic.CONTROL).violations == []
    each_once = dict.fromkeys(upgrade.jobs, 1)
    assert by_job(said, JobPlaced) == by_job(said, LaunchTask) == by_job(said, JobStarted) == each_once
    assert by_job(said, StopTask) == {}
    assert causes(said, LaunchTask) == causes(said, JobPlaced)
    rules: dict[str, list[str]] = {name: [] for name in NAMES}
    for record in said:
        if isinstance(record.envelope.event, ServiceStarted):
            rules[record.envelope.event.service].append(record.envelope.event.rules)
    assert all(len(found) == len(set(found)) == 2 for found in rules.values()), rules
    begins = second_epoch(said)
    turns = [record.offset for record in said if isinstance(record.envelope.event, TimeSliceStarted)]
    assert turns[0] < begins < turns[-1]
    adopted = max(record.offset for record in said if isinstance(record.envelope.event, NodeJoined))
    parked = [
        (record.offset > adopted, record.envelope.event.parked)
        for record in said
        if isinstance(record.envelope.event, JobSuspended) and record.envelope.event.minibatches_total
    ]
    assert {*parked} == {(False, True), (True, True)}, "at a boundary, also where the agent is newer than the task"
    before, after = (r for r in said if r.offset < begins), (r for r in said if r.offset > begins)
    assert by_job(before, JobSuspended).keys() & by_job(after, JobSuspended).keys(), "both have suspended the same jobs"


def check_forms(path: Path, database: Path, upgrade: Upgrade) -> None:
    """The second tree writes the new field and the first did not; its read models have the column, filled."""
    begins = second_epoch(records(path))
    ties = {}
    for line in map(json.loads, path.read_text().splitlines()[1:]):
        if line["headers"]["ce_type"] == JobPlaced.wire_type:
            assert ("tie" in line["data"]) == (line["offset"] > begins)
            ties[line["data"]["job_id"]] = line["data"].get("tie", "")
    assert Counter(ties.values()) == {"": BEFORE, TIE: AFTER}
    with closing(sqlite3.connect(database)) as connection:
        assert dict(connection.execute("SELECT id, tie FROM jobs")) == ties
    assert upgrade.left["next_offset"] <= begins
    assert "placements" not in upgrade.left


def check_trees(path: Path, other: Path, upgrade: Upgrade) -> None:
    """Each tree derives what it has decided, and refolds what the other has; the first names what it cannot read."""
    status, second = sanjaya(other, "replay", str(path), "--verify", "--json")
    assert (status, second["differences"]) == (0, 0), second["first"]
    with open_log(str(path), cell="local") as log:
        first = verify(log, SERVICES)
    [unreadable] = first.details
    assert unreadable.kind is Kind.UNREADABLE and UNKNOWN in unreadable.message
    assert first.versions == second["versions"] == len(NAMES)
    assert (first.decisions, first.refolded) == (second["refolded"], second["decisions"])
    offset = str(upgrade.left["next_offset"])
    _, states = sanjaya(other, "state", str(path), "--at", offset, "--service", "placement")
    assert holders(states["placement"]) == holders(upgrade.left)
    assert any(holder for gpus in holders(upgrade.left).values() for holder in gpus)


def records(path: Path) -> list[Record]:
    """What the first tree can read of a log."""
    newer = ("ce_type", NEWER_EVENT.encode())
    with open_log(str(path), cell="local") as log:
        return [codec.record(message) for message in log.messages if newer not in message.headers]


def by_job(said: Iterable[Record], cls: type[Any]) -> Counter[str]:
    """{job id: records of a type}."""
    return Counter(record.envelope.event.job_id for record in said if isinstance(record.envelope.event, cls))


def causes(said: list[Record], cls: type[Event]) -> set[str]:
    """Ids of the events that records of a type name as their cause."""
    return {record.envelope.causation_id for record in said if isinstance(record.envelope.event, cls)}


def second_epoch(said: list[Record]) -> int:
    """Where placement says that it decides by other rules from there on."""
    started = [record for record in said if isinstance(record.envelope.event, ServiceStarted)]
    return [record.offset for record in started if record.envelope.event.subject == "placement"][1]
