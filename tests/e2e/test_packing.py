"""Jobs that share GPUs on a running cell: a pair that gains is kept, a pair that loses is undone, both with numbers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client
from libs.contracts.agent import JobSuspended
from libs.contracts.base import Event
from libs.contracts.introspection import PackFailed, PackSucceeded
from libs.contracts.placement import JobPacked, JobUnpacked
from libs.testing.leftovers import nothing_left_of
from tests.e2e.checking import checked
from tests.e2e.test_rounds import wait_until

pytestmark = pytest.mark.e2e

TRIAL_S = 120.0
"""More than both trials take on a busy machine: their verdicts come of what is measured, and not of the time."""
TRAINING = """
import sys, time
import libs.testing.quick_torch
import torch

torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
while True:
    loss = model(torch.randn(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    wait()
"""
FRIENDLY = "def wait(): time.sleep(0.1)\n"
HOSTILE = """
import os, pathlib
mine, others = pathlib.Path(f"{__file__}.{os.getpid()}"), pathlib.Path(__file__).parent
mine.touch()
def runs(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T"
    except (FileNotFoundError, ProcessLookupError):
        return False
def wait():
    neighbours = [p for p in others.glob("hostile*.py.*") if p != mine and runs(p.name.rpartition(".")[2])]
    time.sleep(0.5 if neighbours else 0.1)  # a neighbour costs more than its turn would
"""


def test_a_pair_that_gains_is_kept_and_a_pair_that_loses_is_undone(tmp_path: Path):
    plan = CellPlan(
        state_dir=tmp_path / "cell",
        agents=2,
        gpus_per_agent=1,
        gateway_port=free_port(),
        kafka="",
        settings={"SANJAYA_PROFILE_INTERVAL_S": "3", "SANJAYA_WINDOW_S": "1"},
    )
    with Cell(plan), Client(plan.gateway_url) as client:
        client.set_setting("placement", "slice_s", 6)
        client.set_setting("placement", "pack_trial_s", TRIAL_S)
        client.set_policy("gandiva")
        jobs = [submitted(client, tmp_path, name) for name in ("friendly-1", "hostile-1", "friendly-2", "hostile-2")]
        verdicts = ["pack.succeeded.v1", "job.unpacked.v1"]
        wait_until(lambda: {event["type"] for event in client.events(type=verdicts)} == {*verdicts})
        suspensions = count(client, "job.suspended.v1")
        wait_until(lambda: count(client, "job.suspended.v1") >= suspensions + 2)  # they take turns again
        for job in jobs:
            client.cancel(job)
        wait_until(lambda: all(job["state"] == "CANCELLED" for job in client.jobs()))
        names = {str(job["id"]): str(job["name"]) for job in client.jobs()}
        (tmp_path / "log.jsonl").write_bytes(b"".join(client.export()))
    check_log(tmp_path / "log.jsonl", names)
    assert nothing_left_of(tmp_path) == []


def submitted(client: Client, folder: Path, name: str) -> str:
    script = folder / f"{name}.py"
    script.write_text("import time\n" + (FRIENDLY if name.startswith("friendly") else HOSTILE) + TRAINING)
    return str(client.submit({"command": [sys.executable, str(script)], "name": name})["id"])


def count(client: Client, kind: str) -> int:
    return sum(1 for _ in client.events(type=kind))


def check_log(path: Path, names: dict[str, str]) -> None:
    said = [(envelope.time_s, envelope.event) for envelope in checked(path)]
    [(_, kept)] = of(said, PackSucceeded)
    assert {names[kept.job_id], names[kept.with_job]} == {"friendly-1", "friendly-2"} and kept.packed_ratio > 1.5
    [(_, failed)] = of(said, PackFailed)
    assert {names[failed.job_id], names[failed.with_job]} == {"hostile-1", "hostile-2"}
    assert failed.packed_ratio is not None and failed.packed_ratio < 1.0 and failed.reason.numbers
    [packed_s] = [at_s for at_s, event in of(said, JobPacked) if event.job_id == failed.job_id]
    [(unpacked_s, unpacked)] = of(said, JobUnpacked)
    assert unpacked.job_id == failed.job_id and unpacked_s - packed_s < 2 * TRIAL_S
    trained = [event for _, event in of(said, JobSuspended) if event.minibatches_total]
    assert trained and all(event.parked for event in trained)


def of(said: list[tuple[float, Event]], kind: type) -> Iterator[tuple[float, object]]:
    return ((at_s, event) for at_s, event in said if isinstance(event, kind))
