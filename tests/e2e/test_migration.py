"""A job moves live between the nodes of a running cell, and at each step of a move somebody is killed.

Not a bit of its result changes; it never runs twice at a time; nothing is left over.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from torch_agent.harness import inject_path

from libs.cli.cell import Cell, CellPlan
from libs.cli.cell.plan import free_port
from libs.client import Client, ClientError
from libs.contracts.agent import JobRestored
from libs.contracts.migration import MigrationAssessed, MigrationCompleted, MigrationFailed, MigrationStarted
from libs.contracts.placement import JobMoved, JobPreempted
from libs.testing.leftovers import nothing_left_of
from tests.e2e.checking import checked
from tests.e2e.test_rounds import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

SCRIPT = """
import itertools, os, sys, time
import libs.testing.quick_torch
import torch
from pathlib import Path
from sanjaya_job import Job

torch.set_num_threads(1)
torch.manual_seed(0)
losses, end, last = Path(sys.argv[1]), Path(sys.argv[2]), int(os.environ.get("LAST", sys.maxsize))
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Dropout(0.2), torch.nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters())
job = Job(model=model, optimizer=optimizer, checkpoint_every=10)
for epoch in job.epochs(1):
    for number in job.batches(itertools.count()):
        loss = (model(torch.randn(16, 8)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with losses.open("a") as file:
            file.write(f"{number} {loss.item().hex()}\\n")
        if end.exists() or number == last:
            break
        time.sleep(0.0 if last < sys.maxsize else 0.1)
"""
OTHER = {"n1": "n2", "n2": "n1"}
STEPS: list[tuple[str, str]] = [
    ("migration.started.v1", "migration"),
    ("destination.reserved.v1", "placement"),
    ("job.ready.v1", "source's agent"),
    ("job.suspended.v1", "destination's task"),
    ("job.restored.v1", "destination's agent"),
    ("job.moved.v1", "migration"),
]
"""After which event of a move who is killed."""


class MovingJob:
    """A job on a cell of two nodes, driven from one to the other by draining."""

    def __init__(self, cell: Cell, client: Client, folder: Path) -> None:
        self.cell, self.client, self.folder = cell, client, folder
        self.losses, self.end = folder / "losses", folder / "end"
        (folder / "train.py").write_text(SCRIPT)
        command = [sys.executable, str(folder / "train.py"), str(self.losses), str(self.end)]
        self.job_id = str(client.submit({"name": "moves", "command": command, "max_retries": 9})["id"])
        self.until(lambda: self.seen("job.movable.v1"))

    def until(self, holds: Callable[[], object]) -> None:
        """Wait; the gateway is asked, and may be behind."""

        def patiently() -> object:
            try:
                return holds()
            except ClientError:
                return False

        wait_until(patiently)

    def seen(self, kind: str, after: int = -1) -> bool:
        """Whether an event of this type is on the log, behind this place."""
        return any(self.client.events(type=kind, from_offset=after + 1))

    def last_offset(self) -> int:
        return int(self.client.status()["next_offset"]) - 1

    def node(self) -> str:
        """Where it runs."""
        return str(self.client.job(self.job_id)["placement"][0]["node_id"])

    def pid(self, node_id: str) -> int:
        """Of the newest task on a node."""
        started = [event["data"] for event in self.client.events(type="job.started.v1")]
        return [int(data["pid"]) for data in started if data["node_id"] == node_id][-1]

    def move(self, kind: str = "", victim: str = "") -> None:
        """Drain its node; kill the victim after the first event of this kind; wait until it trains elsewhere."""
        self.until(self.movable)
        source, before = self.node(), self.last_offset()
        self.client.drain(source, "moved by a test")
        if kind:
            self.until(lambda: self.seen(kind, before))
            self.kill(victim, source)
        self.until(lambda: self.seen("node.drained.v1", before))
        # Who was killed after the move starts again, and cannot come back here before the node is used again.
        self.until(lambda: self.client.job(self.job_id)["state"] == "RUNNING" and self.node() == OTHER[source])
        self.client.undrain(source)
        written = self.losses.stat().st_size
        self.until(lambda: self.losses.stat().st_size > written)

    def movable(self) -> bool:
        """Whether it is known that its present attempt can hand over its state."""
        attempt = self.client.job(self.job_id)["attempt"]
        kinds = ("job.movable.v1", "job.moved.v1")
        said = [event["data"]["attempt"] for kind in kinds for event in self.client.events(type=kind)]
        return attempt in said

    def kill(self, victim: str, source: str) -> None:
        node_id = source if victim.startswith("source") else OTHER[source]
        if victim.endswith("task"):
            with suppress(ProcessLookupError):  # the move was faster
                os.kill(self.pid(node_id), signal.SIGKILL)
        else:
            self.cell.kill(f"agent-{node_id}" if victim.endswith("agent") else victim)


def test_whoever_is_killed_during_a_move_the_job_ends_once_with_the_right_result(tmp_path: Path):
    plan = CellPlan(
        state_dir=tmp_path / "cell",
        agents=2,
        gpus_per_agent=1,
        gateway_port=free_port(),
        kafka="",  # a broker of its own
        settings={"SANJAYA_PROFILE_INTERVAL_S": "2", "SANJAYA_WINDOW_S": "1"},
    )
    with Cell(plan) as cell, Client(plan.gateway_url) as client:
        job = MovingJob(cell, client, tmp_path)
        job.until(lambda: job.seen("job.profiled.v1"))
        job.move()
        job.until(lambda: job.seen("migration.assessed.v1"))
        for kind, victim in STEPS:
            job.move(kind, victim)
        job.end.touch()
        job.until(lambda: client.job(job.job_id)["state"] == "SUCCEEDED")
        (tmp_path / "log.jsonl").write_bytes(b"".join(client.export()))
    check_losses(job.losses, tmp_path)
    check_log(tmp_path / "log.jsonl", moves=len(STEPS) + 1)
    assert nothing_left_of(tmp_path) == []


def check_losses(file: Path, folder: Path) -> None:
    """Those of an undisturbed run; what was done again after a restart came out the same."""
    found: dict[int, set[str]] = {}
    for line in file.read_text().splitlines():
        number, loss = line.split()
        found.setdefault(int(number), set()).add(loss)
    environment = {**os.environ, "PYTHONPATH": inject_path(), "LAST": str(max(found))}
    command = [sys.executable, str(folder / "train.py"), str(folder / "undisturbed"), str(folder / "never")]
    subprocess.run(command, env=environment, check=True)
    undisturbed = [line.split() for line in (folder / "undisturbed").read_text().splitlines()]
    assert found == {int(number): {loss} for number, loss in undisturbed}


def check_log(path: Path, moves: int) -> None:
    events = [envelope.event for envelope in checked(path)]
    kinds = Counter(type(event) for event in events)
    assert kinds[MigrationStarted] == moves == kinds[MigrationCompleted] + kinds[MigrationFailed]
    assert kinds[JobMoved] >= moves - 3, "the job lives on where a task was not killed"
    assert kinds[JobPreempted] + kinds[JobMoved] >= kinds[MigrationCompleted]
    assert kinds[MigrationAssessed] >= 1
    restored = [event for event in events if isinstance(event, JobRestored)]
    assert all(event.state_bytes > 0 for event in restored)
