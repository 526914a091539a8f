"""Recorded steps of coordination are derived again by command."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner, Result

from libs.cli.main import app_for
from libs.coordination.readings import Readings
from libs.coordination.recording import head_line, step_line
from libs.coordination.state import Coordination
from libs.coordination.step import step


def replayed(folder: Path) -> Result:
    words = ["coordination", "replay", "n1:0", "--records", str(folder)]
    return CliRunner().invoke(app_for(words), words)


def record(path: Path) -> None:
    state, readings = Coordination(), Readings(node_id="n1", index=0, capacity_bytes=1000)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(head_line(state) + step_line(1.0, readings, step(state, readings, 1.0)))


def test_steps_that_are_the_same_are_counted(tmp_path: Path):
    record(tmp_path / "0" / "1.jsonl")
    result = replayed(tmp_path)
    assert (result.exit_code, result.stdout) == (0, "1 step of n1:0 in 1 file, 0 differences\n")


def test_a_file_of_an_agent_with_other_rules_is_named_and_passed_over(tmp_path: Path):
    record(tmp_path / "0" / "2.jsonl")
    older = tmp_path / "0" / "1.jsonl"
    older.write_bytes(b'{"format":1,"state":{}}\n')
    result = replayed(tmp_path)
    assert (result.exit_code, result.stdout) == (0, "1 step of n1:0 in 1 file, 0 differences\n")
    assert result.stderr == f"{older}: passed over: line 1: a record of format 1; expected 4\n"


def test_what_is_no_record_is_an_error(tmp_path: Path):
    record(tmp_path / "0" / "1.jsonl")
    (tmp_path / "0" / "2.jsonl").write_bytes(b"{}\n")
    result = replayed(tmp_path)
    assert result.exit_code == 1
    assert "2.jsonl: line 1: " in result.stderr
