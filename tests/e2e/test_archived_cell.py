"""A cell with an archived log goes on: with its snapshots, and without any."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client
from libs.inspect.sources import open_log
from libs.inspect.story import story
from libs.runtime.starts import starts
from services.roster import NAMES
from tests.e2e.checking import checked

pytestmark = pytest.mark.e2e

OFTEN = {"SANJAYA_SNAPSHOT_EVERY_RECORDS": "5"}
"""Also of a service that is killed because it was slow to end."""


@pytest.fixture
def plan(tmp_path: Path) -> CellPlan:
    return CellPlan(state_dir=tmp_path / "cell", agents=1, gateway_port=free_port(), settings=OFTEN)


def done(plan: CellPlan, jobs: int, **fields: Any) -> list[str]:
    """Have jobs run to their end; the ids of all that the cell knows."""
    with Client(plan.gateway_url) as client:
        submitted = [client.submit({"command": ["true"], **fields})["id"] for _ in range(jobs)]
        deadline = time.monotonic() + 300
        while {client.job(job_id)["state"] for job_id in submitted} != {"SUCCEEDED"}:
            assert time.monotonic() < deadline, list(client.jobs())
            time.sleep(0.2)
        return sorted(job["id"] for job in client.jobs())


def archive(plan: CellPlan, before: int) -> None:
    command = ["archive", "--before", str(before), str(plan.state_dir / "archive"), str(plan.state_dir / "log.db")]
    subprocess.run([sys.executable, "-m", "libs.cli.main", *command], check=True, timeout=300)


def told(plan: CellPlan, job_id: str) -> list[str]:
    with open_log(str(plan.state_dir / "log.db"), cell="local") as log:
        return story(log.records(), job_id).lines()


def test_a_cell_goes_on_behind_its_archive(plan: CellPlan):
    with Cell(plan):
        (first, *_) = earlier = done(plan, 3)
    log, database = plan.state_dir / "log.db", plan.environment()["SANJAYA_DATABASE"]
    said, before_that = checked(log), told(plan, first)
    saved = min(starts(database, "local", said[0].id, NAMES).values())
    assert len(said) - saved < 20
    archive(plan, saved)
    assert checked(log) == said
    assert told(plan, first) == before_that

    with Cell(plan):
        later = done(plan, 1)
        assert set(earlier) < set(later)
        archive(plan, saved)  # while it runs

    engine = create_engine(database)
    with engine.begin() as connection:
        for table in ("core_snapshots", "checkpoint", "jobs", "attempts", "events"):
            connection.execute(text(f"DELETE FROM {table}"))
    engine.dispose()
    with Cell(plan):
        assert set(later) < set(done(plan, 1, after=first)), "an archived job is waited for as any other"
        with Client(plan.gateway_url) as client:
            never = client.submit({"command": ["true"], "after": f"{first}:fail"})["id"]
            deadline = time.monotonic() + 300
            while client.job(never)["state"] != "REJECTED":
                assert time.monotonic() < deadline, client.job(never)
                time.sleep(0.2)
            assert client.job(never)["reason"] == "DependencyNeverMet"
    assert checked(log)[: len(said)] == said
    assert told(plan, first) == before_that
