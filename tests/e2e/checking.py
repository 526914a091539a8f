"""What must hold of the log of every cell, and its commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from libs.cli.cell import Cell
from libs.contracts.envelope import Envelope
from libs.inspect.conservation import conservation
from libs.inspect.sources import open_log
from libs.inspect.verify import verify
from services.roster import SERVICES

SANJAYA = str(Path(sys.executable).with_name("sanjaya"))
WITHIN_S = 400.0


def sanjaya(cell: Cell, *arguments: str, accepted: tuple[int, ...] = (0,)) -> str:
    """What a command of the cell prints, which ends with one of these statuses."""
    environment = {**os.environ, "SANJAYA_GATEWAY": cell.plan.gateway_url}
    done = subprocess.run([SANJAYA, *arguments], env=environment, capture_output=True, text=True, timeout=WITHIN_S)
    assert done.returncode in accepted, (done.stdout, done.stderr)
    return done.stdout


def replay(log: Path, seed: str = "0") -> subprocess.CompletedProcess[str]:
    """`sanjaya replay --verify` in another process, with this PYTHONHASHSEED."""
    return subprocess.run(
        [SANJAYA, "replay", str(log), "--verify"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": seed},
        check=False,
    )


def checked(path: Path) -> list[Envelope]:
    """The records of control: their books balance, and every decision can be derived again."""
    said = balanced(path)
    with open_log(str(path), cell="local") as log:
        result = verify(log, SERVICES)
    assert result.ok, result.first
    return said


def balanced(path: Path) -> list[Envelope]:
    """The records of control: their books balance."""
    with open_log(str(path), cell="local") as log:
        said = [record.envelope for record in log.control()]
        assert conservation(log.control()).violations == []
    return said
