"""Guests on a running cell: beneath every policy, and on the GPUs that are kept for a gang."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from torch_agent.harness import inject_path

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client, ClientError
from libs.contracts.envelope import Envelope
from libs.contracts.placement import GangReserved, JobPlaced, JobPreempted, TimeSliceStarted
from libs.testing.leftovers import nothing_left_of
from libs.testing.thorough import cases
from tests.e2e.checking import checked
from tests.e2e.test_rounds import FINAL, wait_until

pytestmark = pytest.mark.e2e

POLICIES = ("antman", "backfill", "strict_fifo", "max_min_fairness", "finish_time_fairness", "gandiva", "philly")
WAITS = """
import sys, time
from pathlib import Path

while not Path(sys.argv[1]).exists():
    time.sleep(0.05)
"""
TRAINS = """
import sys
import libs.testing.quick_torch
import time, torch
from pathlib import Path

torch.set_num_threads(1)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.randn(1, 8).expand(2**40, 8)  # without an end
loader = torch.utils.data.DataLoader(data, batch_size=4)
for batch in loader:
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
    if Path(sys.argv[1]).exists():
        break
    time.sleep(0.1)
"""


class GuestsCell:
    """A cell with guests, and jobs that run until a file is there."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.client, self.folder = client, folder

    def submit(
        self, name: str, gpus: int = 1, *, of_class: str = "guaranteed", script: str = WAITS, **fields: Any
    ) -> str:
        command = [sys.executable, "-c", script, str(self.folder / f"end of {name}")]
        job = {"name": name, "command": command, "gpus": {"count": gpus}, "class": of_class, **fields}
        return str(self.client.submit(job)["id"])

    def end(self, *names: str) -> None:
        for name in names:
            (self.folder / f"end of {name}").touch()

    def waits_for(self, state: str, *jobs: str) -> None:
        self.until(lambda: all(self.client.job(job)["state"] == state for job in jobs))

    def until(self, holds: Any) -> None:
        def patiently() -> bool:
            try:
                return bool(holds())
            except ClientError:
                return False

        wait_until(patiently)

    def log(self) -> list[Envelope]:
        path = self.folder / "log.jsonl"
        path.write_bytes(b"".join(self.client.export()))
        return checked(path)


def plan_of(tmp_path: Path, bus: str, **plan: Any) -> CellPlan:
    kafka = "" if bus == "kafka" else None
    return CellPlan(state_dir=tmp_path / "cell", gateway_port=free_port(), kafka=kafka, **plan)


@pytest.mark.parametrize("bus", cases("embedded", thorough=("kafka",)))
def test_ten_jobs_run_on_while_all_policies_and_guests_are_switched_through(bus: str, tmp_path: Path):
    plan = plan_of(tmp_path, bus, agents=2, gpus_per_agent=5)
    with Cell(plan), Client(plan.gateway_url) as client:
        cell = GuestsCell(client, tmp_path)
        client.set_policy("backfill", guests="antman")
        names = {f"job-{number}": "opportunistic" if number % 2 else "guaranteed" for number in range(10)}
        jobs = [cell.submit(name, of_class=job_class) for name, job_class in names.items()]
        cell.waits_for("RUNNING", *jobs)
        for policy in POLICIES:
            for guests in ("antman", "none"):
                client.set_policy(policy, guests=guests)
                cell.until(lambda expected=(policy, guests): said(client) == expected)
                assert client.status()["conservation"]["light"] == "green"
        guests_of = [gpu["guests"] for gpu in client.gpus()]
        assert sum(map(len, guests_of)) == 5
        cell.end(*names)
        cell.waits_for("SUCCEEDED", *jobs)
        log = cell.log()
    placed = Counter((envelope.event.job_id, envelope.event.role) for envelope in log if of(envelope, JobPlaced))
    assert sorted(placed.values()) == [1] * 10 and Counter(role for _, role in placed) == {"owner": 5, "guest": 5}
    assert not [envelope for envelope in log if of(envelope, JobPreempted) or of(envelope, TimeSliceStarted)]
    assert nothing_left_of(tmp_path) == []


@pytest.mark.parametrize("bus", cases("embedded", thorough=("kafka",)))
def test_guests_use_what_is_kept_for_a_gang_until_it_is_complete(bus: str, tmp_path: Path, monkeypatch: Any):
    monkeypatch.setenv("PYTHONPATH", inject_path())
    plan = plan_of(tmp_path, bus, agents=1, gpus_per_agent=4)
    with Cell(plan), Client(plan.gateway_url) as client:
        cell = GuestsCell(client, tmp_path)
        client.set_policy("antman")
        owners = {cell.submit(name): name for name in ("a", "b", "c", "d")}
        cell.waits_for("RUNNING", *owners)
        # Of GPUs that are equally busy guests go to the first: so the last one is not kept for the gang.
        [first] = [gpu["job_id"] for gpu in client.gpus() if gpu["index"] == 3]
        others = [job for job in owners if job != first]
        cell.end(*(owners[job] for job in others))
        cell.waits_for("SUCCEEDED", *others)
        gang = cell.submit("gang", 4)
        cell.until(lambda: any(client.events(type="gang.reserved.v1")))
        guests = [cell.submit(f"guest-{number}", of_class="opportunistic", script=TRAINS) for number in range(3)]
        cell.waits_for("RUNNING", *guests)
        cell.until(lambda: all(client.job(guest)["minibatches"] > 0 for guest in guests))
        assert client.job(gang)["state"] == "QUEUED"
        cell.end(owners[first])
        cell.waits_for("RUNNING", gang, *guests)  # its last GPU has no guest that would have to make room
        cell.end("gang", *(f"guest-{number}" for number in range(3)))
        cell.until(lambda: all(client.job(job)["state"] in FINAL for job in (first, gang, *guests)))
        assert {client.job(job)["state"] for job in (first, gang, *guests)} == {"SUCCEEDED"}
        assert [client.job(guest)["attempt"] for guest in guests] == [1, 1, 1]
        log = cell.log()
    [reserved] = [envelope.event for envelope in log if of(envelope, GangReserved)]
    assert reserved.gpus_held == 3
    where = {envelope.event.job_id: envelope for envelope in log if of(envelope, JobPlaced)}
    kept = {index for part in reserved.parts for index in part.kept}
    assert {where[guest].event.gang[0].gpu_indices[0] for guest in guests} == kept
    started_s = min(e.time_s for e in log if e.event.subject == gang and e.event.wire_type == "job.started.v1")
    assert all(where[guest].time_s < where[gang].time_s <= started_s for guest in guests)
    assert nothing_left_of(tmp_path) == []


def of(envelope: Envelope, kind: type) -> bool:
    return isinstance(envelope.event, kind)


def said(client: Client) -> tuple[str, str]:
    found = client.policy()
    return found["policy"], found["guests"]
