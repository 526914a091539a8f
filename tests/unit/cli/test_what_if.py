"""`sanjaya what-if` on the golden log."""

from __future__ import annotations

import json

from typer.testing import CliRunner, Result

from libs.cli.main import app_for
from libs.testing.processes import ROOT


def asked(*arguments: str) -> Result:
    words = ["what-if", str(ROOT / "tests" / "golden" / "cell.jsonl"), *arguments]
    return CliRunner().invoke(app_for(words), words)


def test_it_says_how_waits_and_ends_differ_and_whose():
    said = asked("--policy", "strict_fifo").stdout
    assert said.startswith("29 jobs on 12 GPUs from offset 0 on\nSIMULATED\tbackfill\tstrict_fifo\nmean wait\t")
    found = json.loads(asked("--policy", "strict_fifo", "--json").stdout)
    assert found["other"] == "strict_fifo" and len(found["jobs"]) == 29
    moved = [job for job in found["jobs"] if abs(job["other_finish_s"] - job["finish_s"]) > 1]
    assert moved and moved[0]["job_id"] in said


def test_settings_hold_with_the_other_policy():
    short, long = (asked("--policy", "gandiva", "--set", f"placement.slice_s={s}", "--json").stdout for s in (30, 900))
    assert json.loads(short)["jobs"] != json.loads(long)["jobs"]


def test_bad_input_is_refused_with_what_was_meant():
    wrong = asked("--policy", "backfil")
    assert wrong.exit_code == 2 and "did you mean 'backfill'?" in wrong.stderr
    assert asked().exit_code == 2
    assert asked("--policy", "gandiva", "--from", "-1").exit_code == 2
