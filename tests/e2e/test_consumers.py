"""Others read the log: kcat, and the script in the README."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client

pytestmark = pytest.mark.e2e

README = Path(__file__).parents[2] / "README.md"
FINAL = ("SUCCEEDED", "FAILED", "CANCELLED", "REJECTED")


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    """A cell on Kafka in which jobs have ended in every way."""
    plan = CellPlan(state_dir=tmp_path_factory.mktemp("cell"), agents=1, gateway_port=free_port(), kafka="")
    with Cell(plan) as running, Client(plan.gateway_url) as client:
        for command, gpus in ((["true"], 1), (["true"], 2), (["false"], 1), (["true"], 99)):
            client.submit({"command": command, "gpus": gpus})
        endless = client.submit({"command": ["sleep", "600"]})["id"]
        client.cancel(endless)
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
    assert read_model(cell) == {"SUCCEEDED": 2, "FAILED": 1, "REJECTED": 1, "CANCELLED": 1}


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
    assert ended["job.arrived.v1"] == 5
