"""A node is thought lost while its job trains on: the newer attempt has the job, and the older one harms nothing.

The agent alone stands still, as in a partition; what it has started goes on.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client
from libs.contracts.agent import JobExited
from libs.contracts.introspection import NodeLost
from libs.contracts.placement import AttemptFailed, JobPlaced
from libs.testing.leftovers import nothing_left_of
from tests.e2e.checking import checked
from tests.e2e.disturbed import DisturbedJob

pytestmark = pytest.mark.e2e

LOST_AFTER_S = 6.0


def test_a_job_of_a_node_that_was_thought_lost_ends_once_with_the_right_result(tmp_path: Path):
    settings = {"SANJAYA_NODE_TIMEOUT_S": str(LOST_AFTER_S)}
    plan = CellPlan(
        state_dir=tmp_path / "cell", agents=2, gpus_per_agent=1, gateway_port=free_port(), settings=settings
    )
    with Cell(plan) as cell, Client(plan.gateway_url) as client:
        job = DisturbedJob(cell, client, tmp_path, max_retries=0)
        [first] = [event["data"]["node_id"] for event in client.events(type="job.started.v1")]
        agent = cell.pids()[f"agent-{first}"]
        os.kill(agent, signal.SIGSTOP)
        try:
            job.until(lambda: client.job(job.job_id)["attempt"] == 2 and client.job(job.job_id)["state"] == "RUNNING")
            folder = tmp_path / "cell" / "checkpoints" / job.job_id
            job.until(lambda: any((folder / "attempt-2").glob("job-*[0-9]")))
        finally:
            os.kill(agent, signal.SIGCONT)
        job.until(lambda: job.seen("job.exited.v1"))
        job.goes_on()
        kept = {path.parent.name for path in folder.glob("attempt-*/job-*[0-9]")}
        job.ends()
        shown = client.job(job.job_id)
        log = job.log()
    assert kept == {"attempt-2"}
    assert (shown["state"], shown["attempt"], shown["failed_attempts"], shown["retries_used"]) == ("SUCCEEDED", 2, 0, 0)
    events = [envelope.event for envelope in checked(log)]
    kinds = Counter(type(event) for event in events)
    assert (kinds[NodeLost], kinds[JobPlaced], kinds[AttemptFailed]) == (1, 2, 0)
    [older] = [event for event in events if isinstance(event, JobExited) and event.attempt == 1]
    assert older.outcome in ("interrupted", "stopped"), older
    assert nothing_left_of(tmp_path) == []
