"""Jobs that do not get on, in a whole cell: what users see, and what their tenant wants done."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.bus.local_broker.network import free_port
from libs.cli.cell.cell import Cell
from libs.cli.cell.plan import CellPlan
from tests.integration.test_alarms import TRAINS

SANJAYA = str(Path(sys.executable).with_name("sanjaya"))
WITHIN_S = 300.0


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    settings = {"SANJAYA_STALL_MIN_S": "3", "SANJAYA_STALL_COMPUTING_TIMES": "1"}
    plan = CellPlan(
        state_dir=tmp_path_factory.mktemp("alarms"),
        agents=1,
        gpus_per_agent=2,
        gateway_port=free_port(),
        settings=settings,
    )
    with Cell(plan) as running:
        yield running


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A working directory with a script that hangs after its 40th mini-batch, until its pipe is written to."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(TRAINS)
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "code"


def sanjaya(cell: Cell, *arguments: str, status: int = 0) -> str:
    environment = {**os.environ, "SANJAYA_GATEWAY": cell.plan.gateway_url}
    done = subprocess.run([SANJAYA, *arguments], env=environment, capture_output=True, text=True, timeout=WITHIN_S)
    assert done.returncode == status, (done.stdout, done.stderr)
    return done.stdout


def hanging(cell: Cell, code: Path, tenant: str) -> str:
    script = ("python", "train.py", str(code.parent / "pipe"), str(code.parent / "done"))
    return sanjaya(cell, "submit", "-q", tenant, "--workdir", str(code), "--", *script).strip()


def until_said(cell: Cell, job: str, word: str) -> str:
    """What `show` says, once it says that."""
    deadline = time.monotonic() + WITHIN_S
    while word not in (said := sanjaya(cell, "show", job)):
        assert time.monotonic() < deadline, said
        time.sleep(0.2)
    return said


def test_a_hanging_job_is_told_and_goes_on(cell: Cell, code: Path):
    job = hanging(cell, code, "patient")
    said = until_said(cell, job, "JobStalled")
    assert "notice" in said and "no mini-batch for" in said and "RUNNING" in said
    assert "no mini-batch for" in sanjaya(cell, "why", job)
    assert "no mini-batch for" in sanjaya(cell, "jobs")
    assert "in waits_for_its_turn" in sanjaya(cell, "stacks", job, "--rank", "0")
    (code.parent / "done").touch()
    (code.parent / "pipe").write_text("go")
    sanjaya(cell, "wait", job)
    story = sanjaya(cell, "story", job)
    assert story.count("has stalled") == 1 and "stacks of 1 process are with it" in story
    sanjaya(cell, "stacks", job, status=1)


def test_a_tenant_may_have_hanging_jobs_stopped(cell: Cell, code: Path):
    assert (
        sanjaya(cell, "tenant", "set", "strict", "--on-stall", "stop") == "tenant strict: limit none, on-stall stop\n"
    )
    job = hanging(cell, code, "strict")
    said = until_said(cell, job, "FAILED")
    assert "no mini-batch for" in said and "tenant's policy: such a job is stopped (JobStalled)" in said
    assert "0 differences" in sanjaya(cell, "replay", "--verify")
