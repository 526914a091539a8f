"""A job moves live between the nodes of a running cell, and at each step of a move a process is killed.

Not a bit of its result changes; it never runs twice at a time; nothing is left over.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client
from libs.contracts.agent import JobRestored
from libs.contracts.migration import MigrationAssessed, MigrationCompleted, MigrationFailed, MigrationStarted
from libs.contracts.placement import JobMoved, JobPreempted
from libs.testing.leftovers import nothing_left_of
from libs.testing.thorough import cases
from tests.e2e.checking import checked
from tests.e2e.disturbed import DisturbedJob, everywhere, named

pytestmark = pytest.mark.e2e

OTHER = {"n1": "n2", "n2": "n1"}
MOVE = (
    "migration.started.v1",
    "destination.reserved.v1",
    "job.ready.v1",
    "job.suspended.v1",
    "job.restored.v1",
    "job.moved.v1",
)
"""The events of a move, in order."""
ONE_EACH = ("migration", "placement", "source's agent", "destination's task", "destination's agent", "migration")
"""What to kill after which of them."""
EVERYWHERE = everywhere(MOVE, (*ONE_EACH, "source's task"))


class MovingJob(DisturbedJob):
    """It is driven from one node to the other by draining."""

    def move(self, kind: str = "", victim: str = "") -> None:
        """Drain its node; kill the victim after the first event of this kind; wait until it trains elsewhere."""
        self.until(self.movable)
        source, before = self.node(), self.last_offset()
        self.client.drain(source, "moved by a test")
        if kind:
            self.until(lambda: self.seen(kind, before))
            self.kill(victim, source)
        self.until(lambda: self.seen("node.drained.v1", before))
        # What was killed after the move starts again, and cannot come back here before the node is used again.
        self.until(lambda: self.client.job(self.job_id)["state"] == "RUNNING" and self.node() == OTHER[source])
        self.client.undrain(source)
        self.goes_on()

    def node(self) -> str:
        """Where it runs."""
        return str(self.client.job(self.job_id)["placement"][0]["node_id"])

    def movable(self) -> bool:
        """Whether it is known that its present attempt can hand over its state."""
        attempt = self.client.job(self.job_id)["attempt"]
        kinds = ("job.movable.v1", "job.moved.v1")
        said = [event["data"]["attempt"] for kind in kinds for event in self.client.events(type=kind)]
        return attempt in said

    def kill(self, victim: str, source: str) -> None:
        node_id = source if victim.startswith("source") else OTHER[source]
        if victim.endswith("task"):
            self.kill_task(node_id)
        else:
            self.cell.kill(f"agent-{node_id}" if victim.endswith("agent") else victim)


@pytest.mark.parametrize("victims", cases(ONE_EACH, thorough=EVERYWHERE), ids=named)
def test_whatever_is_killed_during_a_move_the_job_ends_once_with_the_right_result(
    tmp_path: Path, victims: tuple[str, ...]
):
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
        for kind, victim in zip(MOVE, victims, strict=True):
            job.move(kind, victim)
        job.ends()
        log = job.log()
    check_log(log, victims)
    assert nothing_left_of(tmp_path) == []


def check_log(path: Path, victims: tuple[str, ...]) -> None:
    events = [envelope.event for envelope in checked(path)]
    kinds = Counter(type(event) for event in events)
    assert kinds[MigrationStarted] == len(victims) + 1 == kinds[MigrationCompleted] + kinds[MigrationFailed]
    spared = len(victims) - sum(victim.endswith("task") for victim in victims)
    assert kinds[JobMoved] >= spared - 1, "the job lives on where a task was not killed"
    assert kinds[JobPreempted] + kinds[JobMoved] >= kinds[MigrationCompleted]
    assert kinds[MigrationAssessed] >= 1
    restored = [event for event in events if isinstance(event, JobRestored)]
    assert all(event.state_bytes > 0 for event in restored)
