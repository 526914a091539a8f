"""Archiving can be killed at any moment: nothing is lost, and archiving again ends it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from libs.testing.processes import ROOT

KINDS = {
    *(f"{when} {step}" for when in ("before", "after") for step in ("write_lines", "write_table", "write_manifest")),
    *(f"{when} {step}" for when in ("before", "after") for step in ("replace", "_note", "_remove_some", "_commit")),
    "before _shrink",
    "after _shrink",
    "amid write_jsonl",
    "amid write_parquet",
}


def test_a_kill_at_any_step_loses_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.archive_kills", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    killed = [json.loads(line)["at"] for line in done.stdout.splitlines()]
    assert done.returncode == 0, f"after {len(killed)} kills: {done.stderr}"
    assert set(killed) == KINDS
