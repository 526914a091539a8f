"""Unmodified scripts share GPUs in rounds: whatever is killed meanwhile, no job starts twice and no result changes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client
from libs.contracts.agent import JobSuspended
from libs.contracts.placement import JobPlaced, JobPreempted, RoundStarted, TimeSliceStarted
from libs.testing.leftovers import nothing_left_of
from libs.testing.thorough import cases
from tests.e2e.checking import checked
from tests.e2e.patience import PATIENT
from tests.e2e.test_rounds import FINAL, wait_until

pytestmark = pytest.mark.e2e

STEPS = 120
TRAINING = f"""
import os, sys, time
import libs.testing.quick_torch
import torch

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[1]))
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Dropout(0.2), torch.nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters())
print("begins", flush=True)
for _ in range({STEPS}):
    loss = (model(torch.randn(16, 8)) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(float(os.environ.get("PAUSE_S", "0.1")))
print("ends with", loss.item().hex(), flush=True)
"""


@pytest.mark.parametrize("bus", cases("kafka", thorough=("embedded",)))
def test_unmodified_scripts_take_rounds_without_losing_anything(bus: str, tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    kafka = "" if bus == "kafka" else None
    plan = CellPlan(
        state_dir=tmp_path / "cell", agents=1, gpus_per_agent=2, gateway_port=free_port(), kafka=kafka, settings=PATIENT
    )
    with Cell(plan) as cell, Client(plan.gateway_url) as client:
        client.set_setting("placement", "round_s", 2)
        client.set_policy("max_min_fairness", "share fairly")
        jobs = [submitted(client, script, seed) for seed in range(4)]
        wait_until(lambda: suspensions(client) >= 2)
        cell.kill("placement")
        wait_until(lambda: suspensions(client) >= 4)
        cell.kill("agent-n1")
        wait_until(lambda: all(client.job(job)["state"] in FINAL for job in jobs))
        printed = [[line["text"] for line in client.logs(job)] for job in jobs]
        (tmp_path / "log.jsonl").write_bytes(b"".join(client.export()))
    assert printed == [["begins", undisturbed(script, seed)] for seed in range(4)]
    check_log(tmp_path / "log.jsonl", jobs)
    assert nothing_left_of(tmp_path) == []


def submitted(client: Client, script: Path, seed: int) -> str:
    command = [sys.executable, str(script), str(seed)]
    return str(client.submit({"command": command, "name": f"job-{seed}"})["id"])


def suspensions(client: Client) -> int:
    return sum(1 for _ in client.events(type="job.suspended.v1"))


def undisturbed(script: Path, seed: int) -> str:
    """Its last line without a cell."""
    environment = {**os.environ, "PAUSE_S": "0"}
    done = subprocess.run(
        [sys.executable, str(script), str(seed)], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()[-1]


def check_log(path: Path, jobs: list[str]) -> None:
    events = [envelope.event for envelope in checked(path)]
    kinds = Counter(type(event) for event in events)
    assert kinds[RoundStarted] >= 5 and kinds[TimeSliceStarted] >= 4
    assert kinds[JobPreempted] == 0
    assert Counter(event.job_id for event in events if isinstance(event, JobPlaced)) == dict.fromkeys(jobs, 1)
    suspended = [event for event in events if isinstance(event, JobSuspended)]
    assert all(event.parked for event in suspended if event.minibatches_total), "at a boundary, with its memory"
