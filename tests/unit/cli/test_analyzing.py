"""`sanjaya analyze`: prints rows, writes one page, knows a trace from a log."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from libs.bus.connect import connect
from libs.bus.port import TopicLayout
from libs.cli.analyzing import is_trace
from libs.cli.main import app_for

GOLDEN = Path(__file__).parents[2] / "golden" / "cell.jsonl"
HEADER = "job_id,submit_time_s,tenant,model,batch_size,gpus,total_steps,duration_s,status\n"


def run(*arguments: str) -> Result:
    words = ["analyze", *arguments]
    return CliRunner().invoke(app_for(words), words)


def test_a_log_gives_rows_and_one_page(tmp_path: Path):
    out = tmp_path / "report.html"
    done = run(str(GOLDEN), "--out", str(out), "--json")

    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)
    assert {"where": "Table 5", "row": "killed", "column": "jobs", "value": 2.0, "unit": "count", "shown": "2"} in rows
    assert any(row["where"] == "Figure 9" and row["shown"].startswith("missing: losses per epoch") for row in rows)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert out.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("name", ["jobs.csv", "jobs.txt"])
def test_a_trace_is_known_by_its_name_or_its_header(tmp_path: Path, name: str):
    path = tmp_path / name
    path.write_text(HEADER + "a,0,vision,,,1,,600,passed\n")

    done = run(str(path))

    assert done.exit_code == 0, done.output
    assert "Table 5\tpassed\tjobs\t1" in done.stdout
    assert not is_trace(str(GOLDEN))


@pytest.mark.parametrize("name", ["none.csv", "none.jsonl"])
def test_a_source_that_is_not_there_is_bad_input(tmp_path: Path, name: str):
    done = run(str(tmp_path / name))

    assert done.exit_code != 0
    assert not done.stdout


def test_a_page_that_cannot_be_written_is_said_before_the_work(tmp_path: Path):
    done = run(str(GOLDEN), "--out", str(tmp_path / "nowhere" / "report.html"))

    assert done.exit_code != 0
    assert not done.stdout


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["lab"], "the log has the cell lab  try: --cell lab\n"),
        (["east", "lab"], "the log has the cells lab, east  try: --cell NAME\n"),
    ],
)
def test_a_cell_that_a_log_does_not_have_is_told_which_it_has(tmp_path: Path, cells: list[str], said: str):
    path = tmp_path / "log.db"

    async def make(cell: str) -> None:
        bus = await connect(f"sqlite:///{path}", cell)
        await bus.create_topics(TopicLayout())
        await bus.close()

    for cell in cells:
        asyncio.run(make(cell))
    done = run(str(path))

    assert done.exit_code == 2
    assert "topic local.control does not exist; expected that it is created first, or another cell: " in done.stderr
    assert done.stderr.endswith(said)
