"""`sanjaya why` of a recorded log, and the words of a forecast."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from libs.cli.forecasts import lines_of_forecast, start_of
from libs.cli.main import app_for
from libs.inspect.jsonl import write_jsonl
from libs.testing.builders import log_of
from tests.unit.forecast.crowded_cell import stopped_at


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "cell.jsonl"
    with path.open("wb") as file:
        write_jsonl(log_of(stopped_at(60.0)), file)
    return path


def said(*arguments: str) -> tuple[int, str]:
    words = ["why", *arguments]
    result = CliRunner().invoke(app_for(words), words)
    return result.exit_code, result.output


def test_what_would_start_a_job_that_waited(log: Path):
    code, text = said("job-6", "--log", str(log))
    assert code == 0, text
    assert "would start at the next decision if its priority is 1; the limit of tenant research is 5 GPUs" in text
    assert "how far such expectations are off is not known yet" in text
    document = json.loads(said("job-6", "--log", str(log), "--json")[1])
    assert [change["kind"] for change in document["forecast"]["options"][0]["changes"]] == ["priority", "limit"]


def test_at_an_earlier_offset_and_of_a_job_that_runs(log: Path):
    code, text = said("other", "--log", str(log))
    assert code == 0 and "RUNNING" in text and "would start" not in text
    code, text = said("other", "--log", str(log), "--at", "30")
    assert code == 0 and "InsufficientGpus" in text and "would start at the next decision if" in text


def test_what_cannot_be_answered(log: Path):
    assert said("nothing", "--log", str(log)) == (3, "error: nothing has not arrived before the end of the log\n")
    code, text = said("job-6", "--at", "3")
    assert (code, "--at belongs to --log" in text) == (2, True)


def test_words():
    errors = {"expectations": 12, "median_ratio": 0.08, "p90_ratio": 0.314}
    expected = {
        "in_s": 5400.0,
        "rests_on": {"time_limit": 3, "remaining_work": 9},
        "basis": "remaining_work",
        "arrivals": 2,
    }
    found: dict[str, Any] = {"is_complete": False, "options": [], "expected": expected, "errors": errors}
    assert lines_of_forecast(found) == [
        "  nothing that was tried before the search was cut off would start it at the next decision",
        "  expected to start in 1h, by measured rates, with 2 jobs that may arrive before; of 12 expectations so far "
        "half were off by less than 8% of the wait, nine of ten by less than 31%",
    ]
    found["errors"] = errors | {"basis": "residual_life"}
    assert "; of 12 expectations by how long others of the tenant ran so far half" in lines_of_forecast(found)[1]
    assert start_of({"in_s": 0.0}, {}) == "expected to start at once"
    assert start_of({"in_s": None}, {}) == "not expected to start as long as nothing changes"
