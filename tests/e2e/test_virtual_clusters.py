"""Two tenants share a cell of real processes: one borrows what the other does not use, and gives it back."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client
from libs.contracts.placement import JobPlaced, JobQueued
from libs.contracts.quota import QuotaGranted, QuotaReclaimed
from libs.testing.leftovers import nothing_left_of
from tests.e2e.checking import checked

pytestmark = pytest.mark.e2e

SANJAYA = str(Path(sys.executable).with_name("sanjaya"))
WAITS = ["python", "-c", "import signal; signal.pause()"]
WITHIN_S = 300.0


def sanjaya(cell: Cell, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SANJAYA_GATEWAY": cell.plan.gateway_url}
    return subprocess.run([SANJAYA, *arguments], env=environment, capture_output=True, text=True, timeout=WITHIN_S)


def until(holds: Callable[[], bool]) -> None:
    """Nothing announces it to a client."""
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline, "it has not come to that in time"
        time.sleep(0.1)


def submit(client: Client, tenant: str, gpus: int = 1, command: list[str] = WAITS) -> str:
    return str(client.submit({"command": command, "gpus": gpus, "tenant": tenant})["id"])


def test_what_is_lent_is_reclaimed_and_lent_again(tmp_path: Path):
    plan = CellPlan(state_dir=tmp_path / "cell", agents=1, gpus_per_agent=4, gateway_port=free_port())
    with Cell(plan) as cell, Client(plan.gateway_url) as client:

        def running(*jobs: str) -> Callable[[], bool]:
            return lambda: all(client.job(job)["state"] == "RUNNING" for job in jobs)

        set_up(cell)
        jobs = [submit(client, "lab") for _ in range(4)]
        until(running(*jobs))
        owner = submit(client, "shop", 2)
        until(running(owner))
        assert sum(client.job(job)["state"] == "RUNNING" for job in jobs) == 2
        waiting = next(job for job in jobs if client.job(job)["state"] == "QUEUED")
        assert "FairShare" in sanjaya(cell, "why", waiting).stdout
        tree = {line.split()[0]: line.split()[1:8] for line in sanjaya(cell, "tenants").stdout.splitlines()[1:]}
        assert tree["lab"] == ["2", "none", "2", "2", "0", "0", "2"], "two within its guarantee, two wait"
        assert tree["shop"][:3] == ["2", "none", "2"]
        client.cancel(owner)
        until(running(*jobs))
        for job in jobs:
            client.cancel(job)
        until(lambda: all(client.job(job)["state"] == "CANCELLED" for job in [owner, *jobs]))
        log = cell.plan.state_dir / "log.db"
    said = [envelope.event for envelope in checked(log)]
    victims = [victim.job_id for event in said if isinstance(event, QuotaReclaimed) for victim in event.victims]
    assert len(victims) == len(set(victims)) == 2
    returned = [event.job_id for event in said if isinstance(event, JobQueued) and event.returns_to_quota]
    assert sorted(returned) == sorted(victims)
    assert [event.attempt for event in said if isinstance(event, JobPlaced) and event.job_id in victims].count(2) == 2
    shares = [event.share for event in said if isinstance(event, QuotaGranted) and event.job_id in victims]
    assert set(shares) == {"borrowed"}
    assert nothing_left_of(tmp_path) == []


def set_up(cell: Cell) -> None:
    """Both tenants have half of the cell, and what does not fit is refused with both numbers."""
    assert sanjaya(cell, "tenant", "set", "lab", "--guarantee", "2").returncode == 0
    assert sanjaya(cell, "tenant", "set", "shop", "--guarantee", "2", "--weight", "2").returncode == 0
    refused = sanjaya(cell, "tenant", "set", "shop", "--guarantee", "3")
    assert refused.returncode == 2, refused.stderr
    assert "guaranteed 5 GPUs, and the cell has 4" in refused.stderr
    refused = sanjaya(cell, "tenant", "set", "shop", "--parent", "shop")
    assert refused.returncode == 2 and "below itself" in refused.stderr
