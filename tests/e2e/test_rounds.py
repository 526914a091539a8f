"""An allocation policy on a running cell: tasks leave their GPUs and go on where they were; all is on the log."""

from __future__ import annotations

import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client
from libs.contracts.gateway import JobArrived, PolicyChanged
from libs.contracts.placement import AllocationComputed, JobPlaced, JobPreempted, RoundStarted
from libs.testing.leftovers import nothing_left_of
from libs.testing.thorough import cases
from tests.e2e.checking import checked

pytestmark = pytest.mark.e2e

FINAL = ("SUCCEEDED", "FAILED", "CANCELLED", "REJECTED")
STEPS = 120
SCRIPT = f"""
import json, os, time
from sanjaya_lease import LeaseIterator

weight = 0.0

def save(path):
    json.dump(weight, open(path, "w"))

def load(path):
    global weight
    weight = json.load(open(path))

fast = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fast")
lease = LeaseIterator(range({STEPS}), save=save, load=load)
print("begins at", lease.batches_done, flush=True)
for _ in lease:
    weight -= 0.1 * (weight - 3.0)  # one step of gradient descent
    time.sleep(0.02 if os.path.exists(fast) else 0.5)  # however slow the cell is, there are rounds enough
    if lease.batches_done + 1 == {STEPS}:
        print("ends with", round(weight, 6), flush=True)
        break
"""


@pytest.mark.parametrize("bus", cases("kafka", thorough=("embedded",)))
def test_jobs_share_gpus_in_rounds_and_policies_are_switched_under_way(bus: str, tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    kafka = "" if bus == "kafka" else None
    plan = CellPlan(state_dir=tmp_path / "cell", agents=2, gpus_per_agent=1, gateway_port=free_port(), kafka=kafka)
    with Cell(plan), Client(plan.gateway_url) as client:
        client.set_setting("placement", "round_s", 2)
        jobs = [submitted(client, script, number) for number in range(4)]
        wait_until(lambda: running(client) == 2)
        client.set_policy("max_min_fairness", "share fairly")
        wait_until(lambda: preemptions(client) >= 3)
        (tmp_path / "fast").touch()
        client.set_policy("finish_time_fairness", "and in time")
        wait_until(lambda: all(client.job(job)["state"] in FINAL for job in jobs))
        assert Counter(client.job(job)["state"] for job in jobs) == {"SUCCEEDED": 4}
        printed = {job: [line["text"] for line in client.logs(job)] for job in jobs}
        (tmp_path / "log.jsonl").write_bytes(b"".join(client.export()))
    check_output(printed)
    check_log(tmp_path / "log.jsonl")
    assert nothing_left_of(tmp_path) == []


def submitted(client: Client, script: Path, number: int) -> str:
    rates = {"virtual": 20.0}
    job = {
        "command": [sys.executable, str(script)],
        "name": f"job-{number}",
        "throughputs": rates,
        "total_steps": STEPS,
        "restartable": True,
    }
    return str(client.submit(job)["id"])


def running(client: Client) -> int:
    return sum(job["state"] == "RUNNING" for job in client.jobs())


def preemptions(client: Client) -> int:
    return sum(1 for _ in client.events(type="job.preempted.v1"))


def wait_until(holds: object, within_s: float = 400.0) -> None:
    deadline = time.monotonic() + within_s
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.2)


def check_output(printed: dict[str, list[str]]) -> None:
    """Every attempt begins where the one before has stopped, and the end is that of an undisturbed run."""
    weight = 0.0
    for _ in range(STEPS):
        weight -= 0.1 * (weight - 3.0)
    resumed = 0
    for lines in printed.values():
        begins = [int(line.removeprefix("begins at ")) for line in lines if line.startswith("begins at")]
        assert begins == sorted(begins) and begins[0] == 0
        resumed += len(begins) - 1
        # A job stopped between its last line and its exit says that line again: once an attempt at most, and the same.
        assert lines[-1] == f"ends with {round(weight, 6)}"
        for line, next_one in pairwise([*lines, ""]):
            assert line.startswith("begins") or (line == lines[-1] != next_one)
    assert resumed >= 3


def check_log(path: Path) -> None:
    events = [envelope.event for envelope in checked(path)]
    kinds = Counter(type(event) for event in events)
    assert kinds[PolicyChanged] == 2 and kinds[JobArrived] == 4
    assert kinds[AllocationComputed] >= 2 and kinds[RoundStarted] >= 3
    placed = Counter(event.job_id for event in events if isinstance(event, JobPlaced))
    preempted = Counter(event.job_id for event in events if isinstance(event, JobPreempted))
    for job, attempts in placed.items():
        # A job that ends while it is being stopped was preempted once more than it was placed anew.
        assert preempted[job] - (attempts - 1) in (0, 1)
