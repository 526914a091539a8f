"""Others read the log: kcat, the script in the README, an app of Faust, DuckDB."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from torch_agent.harness import inject_path

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
TRAINS = """
import sys, time
import libs.testing.quick_torch
import torch
from pathlib import Path

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while not Path(sys.argv[1]).exists():
    for batch in torch.utils.data.DataLoader(torch.randn(40, 8), batch_size=4):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        time.sleep(0.01)
"""
FINAL = ("SUCCEEDED", "FAILED", "CANCELLED", "REJECTED")


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    """A cell on Kafka in which jobs have ended in every way, one of them after some training."""
    folder = tmp_path_factory.mktemp("cell")
    plan = CellPlan(state_dir=folder / "state", agents=1, gateway_port=free_port(), kafka="")
    with Cell(plan) as running, Client(plan.gateway_url) as client:
        for command, gpus in ((["true"], 1), (["true"], 2), (["false"], 1), (["true"], 99)):
            client.submit({"command": command, "gpus": gpus})
        training = {"command": [sys.executable, "-c", TRAINS, str(folder / "end")], "gpus": 2, "tenant": "vision"}
        client.submit({**training, "env": {"PYTHONPATH": f"{inject_path()}:{ROOT}"}})
        endless = client.submit({"command": ["sleep", "600"]})["id"]
        client.cancel(endless)
        next(client.events(type="job.profiled.v1", follow=True, from_offset=0))
        (folder / "end").touch()
        deadline = time.monotonic() + 300
        while not all(job["state"] in FINAL for job in client.jobs()):
            assert time.monotonic() < deadline, list(client.jobs())
            time.sleep(0.2)
        yield running


def read_model(cell: Cell) -> Counter[str]:
    with Client(cell.plan.gateway_url) as client:
        return Counter(job["state"] for job in client.jobs())


def test_the_script_in_the_readme_counts_like_the_read_model(cell: Cell):
    script = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert script is not None
    servers = cell.plan.bus.removeprefix("kafka://")
    program = script.group(1).replace("HOST:9092", servers)
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    assert Counter(json.loads(printed.stdout)) == read_model(cell)
    assert read_model(cell) == {"SUCCEEDED": 3, "FAILED": 1, "REJECTED": 1, "CANCELLED": 1}


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat_reads_cloudevents(cell: Cell):
    servers = cell.plan.bus.removeprefix("kafka://")
    command = ["kcat", "-C", "-b", servers, "-t", "local.control", "-o", "beginning", "-e", "-q", "-J"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout.splitlines()
    records = [json.loads(line) for line in lines]
    heads = [dict(zip(record["headers"][::2], record["headers"][1::2], strict=True)) for record in records]
    assert all(head["ce_specversion"] == "1.0" and head["content-type"] == "application/json" for head in heads)
    ended = Counter(head["ce_type"] for head in heads)
    assert ended["job.succeeded.v1"] == read_model(cell)["SUCCEEDED"]
    assert ended["job.arrived.v1"] == 6


def test_an_app_of_faust_follows_the_gpu_time_of_a_tenant(cell: Cell):
    with Client(cell.plan.gateway_url) as client:
        profiles = [event["data"] for event in client.events(type="job.profiled.v1")]
    assert profiles and all(profile["window_s"] > 0 for profile in profiles)
    told = faust_lines(cell, len(profiles))
    assert {line["tenant"] for line in told} == {"vision"}
    of_window = {line["window_start_s"]: line["gpu_s"] for line in told}
    assert sum(of_window.values()) == pytest.approx(2 * sum(profile["window_s"] for profile in profiles))


def faust_lines(cell: Cell, count: int) -> list[dict[str, Any]]:
    """The first lines that the app prints."""
    env = {**os.environ, "BROKER": cell.plan.bus, "CELL": "local"}
    command = [sys.executable, "-m", "faust", "-A", "infra.analytics.utilisation", "worker", "-l", "error"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env, cwd=ROOT) as app:
        assert app.stdout is not None
        try:
            # Faust's own greeting has no line feed at its end: the first line begins behind it.
            lines = (line[line.index("{") :] for line in app.stdout if "{" in line)
            return [json.loads(next(lines)) for _ in range(count)]
        finally:
            app.kill()


def test_sql_on_an_exported_log_counts_like_the_read_model(cell: Cell, tmp_path: Path):
    log = tmp_path / "log.jsonl"
    with Client(cell.plan.gateway_url) as client:
        log.write_bytes(b"".join(client.export()))
        placed = {event["data"]["job_id"] for event in client.events(type="job.placed.v1")}
        alone = sum(job["gpus"] == 1 for job in client.jobs() if job["id"] in placed)
    statuses, waits, reasons = study(log)
    found = read_model(cell)
    assert {status: jobs for status, jobs, _ in statuses} == {
        "passed": found["SUCCEEDED"],
        "killed": found["CANCELLED"],
        "unsuccessful": found["FAILED"] + found["REJECTED"],
    }
    assert {size: jobs for size, jobs, *_ in waits} == {"1": alone, "2-4": 2}
    assert [(trials, jobs) for _, trials, jobs in reasons] == [(1, 1)]


def study(log: Path) -> list[list[Any]]:
    """The rows of each table of the study."""
    database = duckdb.connect()
    database.execute(f"SET VARIABLE log = '{log}'")
    script = database.extract_statements((ROOT / "infra" / "analytics" / "study.sql").read_text())
    answers = [(statement, database.execute(statement).fetchall()) for statement in script]
    return [rows for statement, rows in answers if statement.type == duckdb.StatementType.SELECT]
