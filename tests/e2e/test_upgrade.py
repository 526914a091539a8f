"""A cell is upgraded under running jobs: each process is exchanged for one of another tree, and no task notices.

The other tree breaks ties otherwise, sorts rounds otherwise, has a field more in a state, an event and a table, a new
version of an event and another layout of the page (`second_tree.py`). What the first tree has decided stands; the
second decides from there on.

Two changes of place are under way meanwhile: the first tree has begun them, and the second ends them. A job leaves a
server that is drained, while all services and agents are exchanged. An elastic job grows, while all services are; that
is under `gandiva` alone, because no job grows under the allocation policies. Under these a drained server's job is not
moved live either: it is told to stop, saves what it has done, and goes on from there elsewhere.
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
from libs.contracts.agent import (
    JobMovable,
    JobReady,
    JobRestored,
    JobStarted,
    JobSuspended,
    NodeJoined,
)
from libs.contracts.base import Event, Topic
from libs.contracts.envelope import Record
from libs.contracts.migration import MigrationCompleted, MigrationFailed, MigrationStarted
from libs.contracts.placement import (
    DestinationReserved,
    JobMoved,
    JobPlaced,
    JobPreempted,
    JobResized,
    LaunchTask,
    MoveAbandoned,
    StopTask,
    TimeSliceStarted,
)
from libs.contracts.runtime import ServiceStarted
from libs.inspect.conservation import conservation
from libs.inspect.differences import Kind
from libs.inspect.sources import open_log
from libs.inspect.verify import verify
from libs.policies.slicing.table import SLICING_POLICIES
from libs.testing.leftovers import nothing_left_of
from libs.testing.thorough import rows
from services.roster import NAMES, SERVICES
from tests.e2e.changing_place import BATCHES, STARTS, WIDEST, ChangingJob
from tests.e2e.patience import PATIENT
from tests.e2e.second_tree import AGENT_VERSION, NEWER_EVENT, TIE, second_tree
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

pytestmark = pytest.mark.e2e

AGENTS = ("agent-n1", "agent-n2", "agent-n3", "agent-n4")
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
        self.moved: list[ChangingJob] = []
        self.grown: list[ChangingJob] = []
        """Those that change their place; `jobs` are the others."""
        self.seen: dict[int, float] = {}
        """{pid: when it was started} of the tasks that were there before the upgrade, and are to be there after it."""
        self.left: dict[str, Any] = {}
        """Placement's state when its process of the first tree ended."""

    def submits(self, count: int) -> None:
        """Jobs that train until they are told to end."""
        for seed in range(len(self.jobs), len(self.jobs) + count):
            command = [sys.executable, str(self.folder / "train.py"), str(self.folder), str(seed)]
            spec = {"command": command, "name": f"job-{seed}", "gpus": "virtual:1"}
            self.jobs.append(str(self.client.submit(spec)["id"]))

    def submits_changing(self, *, one_grows: bool) -> None:
        """One that is to move and fills its server, so that one that is to grow begins on another."""
        self.moved.append(ChangingJob.submitted(self.client, self.folder, "moved"))
        if one_grows:
            self.grown.append(ChangingJob.submitted(self.client, self.folder, "grown", grows=True))

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
        """Wait for that, and note the processes of those that stay where they are."""
        changing = {job.job_id for job in (*self.moved, *self.grown)}
        self.until(lambda: len(self.events(JobStarted)) == len(self.jobs) + len(changing))
        self.until(lambda: {event["data"]["job_id"] for event in self.events(JobMovable)} == changing)
        started = [event["data"] for event in self.events(JobStarted)]
        pids = [int(data["pid"]) for data in started if data["job_id"] in self.jobs]
        self.seen = {pid: psutil.Process(pid).create_time() for pid in pids}

    def changes_begin(self, *, live: bool) -> None:
        """A server is drained, and GPUs beside the job that is to grow count as idle; gates keep both from ending.

        Live: the tasks that are to take over take long to start. Else the one that is told to stop is in a long
        mini-batch, and is given the time for that.
        """
        for job in (*self.moved, *self.grown):
            job.closes(STARTS if live else BATCHES)
        if not live:
            self.client.set_setting("placement", "stop_grace_s", 600)
            self.until(lambda: all(job.stands_at(BATCHES) for job in self.moved))
        for job in self.moved:
            [source] = self.client.job(job.job_id)["placement"]
            self.client.drain(source["node_id"], "another job needs it", now=True)
        if self.grown:
            self.client.set_setting("migration", "grow_after_s", 1)
        begun = len([*self.moved, *self.grown])
        self.until(lambda: len(self.starts_again() if live else self.events(JobPreempted)) == begun)

    def goes_on(self, job: ChangingJob, gate: str) -> None:
        """The change of place goes to its end."""
        job.opens(gate)
        self.until(lambda: any(event["data"]["job_id"] == job.job_id for event in self.events(MigrationCompleted)))

    def starts_again(self) -> list[dict[str, Any]]:
        """Starts of tasks that are not a job's first."""
        return [event for event in self.events(JobStarted) if event["data"]["attempt"] > 1]

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
        found = (self.folder / "cell" / "nodes").rglob("rank-*.page")
        read = (path.read_bytes() for path in found)
        return {HEAD.unpack_from(page)[1] for page in read if len(page) >= HEAD.size}  # one that just begins is empty

    def ends(self) -> None:
        """Let all jobs end, and change a setting once more when they have."""
        (self.folder / "end").touch()
        ended = {"SUCCEEDED": len([*self.jobs, *self.moved, *self.grown])}
        self.until(lambda: Counter(job["state"] for job in self.client.jobs()) == ended)
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
    return second_tree(tmp_path_factory.mktemp("other") / "tree")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Of the jobs and the cell; tasks that a failed test leaves behind end with it."""
    yield tmp_path
    ended_by_force(tmp_path)


@pytest.mark.parametrize(
    ("policy", "bus"),
    rows(
        ("gandiva", "embedded"),
        thorough=(("max_min_fairness", "kafka"), ("gandiva", "kafka"), ("max_min_fairness", "embedded")),
    ),
)
def test_tasks_go_on_while_every_process_is_exchanged_for_one_of_another_tree(
    policy: str, bus: str, folder: Path, other: Path
):
    (folder / "train.py").write_text(SCRIPT)
    live = policy in SLICING_POLICIES
    plan = UpgradedPlan(
        state_dir=folder / "cell",
        agents=len(AGENTS),
        gpus_per_agent=2,
        gateway_port=free_port(),
        kafka="" if bus == "kafka" else None,
        on_exit="keep",
        settings={"SANJAYA_CHECK_EVERY_RECORDS": "1", **PATIENT},
    )
    with UpgradedCell(plan) as cell, Client(plan.gateway_url) as client:
        first, second = cell.plan.commands(), cell.plan.of(other).commands()
        upgrade = Upgrade(cell, client, folder)
        for name in ("slice_s", "round_s"):
            client.set_setting("placement", name, 2)
        client.set_policy(policy)
        upgrade.submits_changing(one_grows=live)
        upgrade.submits(BEFORE)
        upgrade.all_have_started()
        upgrade.changes_places()
        upgrade.changes_begin(live=live)
        upgrade.services_become(second)
        for job in upgrade.grown:
            upgrade.goes_on(job, STARTS)
        upgrade.changes_places()
        upgrade.agents_become(second)
        for job in upgrade.moved:
            upgrade.goes_on(job, STARTS if live else BATCHES)
        upgrade.submits(AFTER)
        upgrade.until(lambda: upgrade.pages() == {PAGE_VERSION, PAGE_VERSION + 1})
        upgrade.changes_places()
        assert upgrade.seen == {pid: psutil.Process(pid).create_time() for pid in upgrade.seen}
        upgrade.ends()
        log = folder / "log.jsonl"
        log.write_bytes(b"".join(client.export()))
        upgrade.first_tree_refuses(first)
    assert nothing_left_of(folder) == []
    losses, changing = written(folder), [*upgrade.moved, *upgrade.grown]
    assert len(losses) == BEFORE + AFTER + len(changing)
    assert losses == by_hand(folder, losses, changing)
    check_log(log, upgrade)
    check_changes(log, upgrade, live=live)
    check_forms(log, folder / "cell" / "read_models.db", upgrade)
    check_trees(log, other, upgrade)


def check_log(path: Path, upgrade: Upgrade) -> None:
    """Each job was placed, launched and started once, and none stopped, but for changes of place; both trees have let
    them take turns.
    """
    said = records(path)
    assert conservation(record for record in said if record.topic is Topic.CONTROL).violations == []
    live, restarted = by_job(said, JobMoved), by_job(said, JobPreempted)
    each_once = Counter(upgrade.jobs + [job.job_id for job in (*upgrade.moved, *upgrade.grown)])
    assert by_job(said, JobPlaced) == each_once + restarted
    assert by_job(said, LaunchTask) == by_job(said, JobStarted) == each_once + restarted + live
    assert by_job(said, StopTask) == restarted + live
    assert causes(said, LaunchTask) == causes(said, JobPlaced) | causes(said, DestinationReserved)
    assert causes(said, StopTask) == causes(said, JobMoved) | causes(said, JobPreempted)
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


def check_changes(path: Path, upgrade: Upgrade, *, live: bool) -> None:
    """The jobs that were to change their place did, once each; the first tree began it and the second ended it."""
    said = records(path)
    moved, grown = ([job.job_id for job in jobs] for jobs in (upgrade.moved, upgrade.grown))
    assert by_job(said, MigrationStarted) == by_job(said, MigrationCompleted) == Counter(moved + grown)
    assert by_job(said, MigrationFailed) == by_job(said, MoveAbandoned) == {}
    assert by_job(said, JobMoved) == by_job(said, DestinationReserved) == Counter((moved + grown) if live else [])
    assert by_job(said, JobPreempted) == Counter([] if live else moved)
    assert by_job(said, JobResized) == Counter(grown)
    services = [offset for offsets in offsets_by(said, ServiceStarted, "service").values() for offset in offsets[1:]]
    agents = [offset for offsets in offsets_by(said, NodeJoined, "node_id").values() for offset in offsets[1:]]
    assert (len(services), len(agents)) == (len(NAMES), len(AGENTS))
    begun = (MigrationStarted, DestinationReserved, JobStarted) if live else (MigrationStarted, JobPreempted)
    ended = (JobReady, JobSuspended, JobRestored, JobMoved) if live else (JobPlaced, JobStarted)
    for job_ids, exchanged in ((moved, services + agents), (grown, services)):
        for job_id in job_ids:
            last: dict[type[Event], Any] = {
                type(record.envelope.event): record for record in said if about(record) == job_id
            }
            assert all(last[cls].offset < min(exchanged) for cls in begun)
            assert all(last[cls].offset > max(exchanged) for cls in (*ended, MigrationCompleted))
            started = last[MigrationStarted].envelope.event
            [task] = last[JobMoved if live else JobPlaced].envelope.event.gang
            assert ([task.node_id] == started.from_nodes) == (job_id in grown)
            assert len(task.gpu_indices) == (WIDEST if job_id in grown else 1)
            assert last[MigrationCompleted].envelope.event.live == live
    assert all(min(agents) > record.offset for record in said if isinstance(record.envelope.event, JobResized))


def check_forms(path: Path, database: Path, upgrade: Upgrade) -> None:
    """The second tree writes the new field and the first did not; its read models have the column, filled."""
    begins = second_epoch(records(path))
    ties = {}
    for line in map(json.loads, path.read_text().splitlines()[1:]):
        if line["headers"]["ce_type"] == JobPlaced.wire_type:
            assert ("tie" in line["data"]) == (line["offset"] > begins)
            ties[line["data"]["job_id"]] = line["data"].get("tie", "")
    live, restarted = (len(by_job(records(path), cls)) for cls in (JobMoved, JobPreempted))
    assert Counter(ties.values()) == {"": BEFORE + live, TIE: AFTER + restarted}
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


def about(record: Record) -> str:
    """The job that a fact or decision is about; empty: none, or the record is an order."""
    return str(getattr(record.envelope.event, "job_id", "")) if record.topic is Topic.CONTROL else ""


def offsets_by(said: Iterable[Record], cls: type[Event], field: str) -> dict[str, list[int]]:
    """{value of a field: where records of a type with it stand}."""
    found: dict[str, list[int]] = {}
    for record in said:
        if isinstance(record.envelope.event, cls):
            found.setdefault(getattr(record.envelope.event, field), []).append(record.offset)
    return found


def causes(said: list[Record], cls: type[Event]) -> set[str]:
    """Ids of the events that records of a type name as their cause."""
    return {record.envelope.causation_id for record in said if isinstance(record.envelope.event, cls)}


def second_epoch(said: list[Record]) -> int:
    """Where placement says that it decides by other rules from there on."""
    started = [record for record in said if isinstance(record.envelope.event, ServiceStarted)]
    return [record.offset for record in started if record.envelope.event.subject == "placement"][1]
