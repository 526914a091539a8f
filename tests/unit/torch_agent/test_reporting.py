"""What scripts report, as it leaves the training process."""

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from torch_agent.harness.reporting import Reporter, parameters
from torch_agent.reports import decode_report


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "reports.jsonl"
    monkeypatch.setenv("SANJAYA_REPORTS", str(path))
    monkeypatch.delenv("RANK", raising=False)
    return path


def written(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_a_report_is_a_line_that_the_agent_reads(file: Path):
    reporter = Reporter()
    reporter.report(1, accuracy=0.5, loss=2)
    reporter.report(step=2.5, loss=-1e-300)
    assert written(file) == [
        {"step": 1.0, "values": {"accuracy": 0.5, "loss": 2.0}},
        {"step": 2.5, "values": {"loss": -1e-300}},
    ]
    reports = [decode_report(line) for line in file.read_bytes().splitlines()]
    assert [(report.step, report.values["loss"]) for report in reports] == [(1.0, 2.0), (2.5, -1e-300)]


def test_metrics_of_one_step_count_together(file: Path):
    reporter = Reporter()
    reporter.report(1, loss=2.0)
    reporter.report(1, accuracy=0.5)
    reporter.report(2, loss=1.0)
    assert [line["values"] for line in written(file)] == [{"loss": 2.0}, {"loss": 2.0, "accuracy": 0.5}, {"loss": 1.0}]


def test_numbers_of_torch_and_numpy_are_numbers(file: Path):
    Reporter().report(
        numpy.int64(3),
        tensor=torch.tensor(0.5, requires_grad=True),
        whole=torch.tensor(3),
        numpy=numpy.float32(0.25),
        flag=True,
    )
    assert written(file) == [{"step": 3.0, "values": {"tensor": 0.5, "whole": 3.0, "numpy": 0.25, "flag": 1.0}}]


@pytest.mark.parametrize("value", ["0.5", b"1", None, [1.0], {}, 1j, torch.tensor([1.0, 2.0]), numpy.ones(2), 10**400])
def test_what_is_no_number_is_named(value: Any, file: Path):
    with pytest.raises(TypeError, match=r"report\(step=1\): metric 'loss' is of type \w+; expected (a|one) number"):
        Reporter().report(1, loss=value)
    with pytest.raises(TypeError, match=r"report: step is of type \w+; expected (a|one) number"):
        Reporter().report(value, loss=1.0)
    assert written(file) == []


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({}, "0 metrics; expected 1 to 16"),
        ({f"m{number}": 1.0 for number in range(17)}, "17 metrics; expected 1 to 16"),
        ({"": 1.0}, "called ''; expected 1 to 64 printable characters"),
        ({"x" * 65: 1.0}, "expected 1 to 64 printable characters"),
        ({"a\0": 1.0}, "expected 1 to 64 printable characters"),
    ],
)
def test_bad_metrics_are_refused(metrics: dict[str, float], message: str, file: Path):
    with pytest.raises(ValueError, match=message):
        Reporter().report(1, **metrics)
    assert written(file) == []


def test_the_metrics_of_one_step_are_counted_together(file: Path):
    reporter = Reporter()
    reporter.report(1, **{f"a{number}": 1.0 for number in range(10)})
    with pytest.raises(ValueError, match="17 metrics"):
        reporter.report(1, **{f"b{number}": 1.0 for number in range(7)})
    reporter.report(1, **{f"b{number}": 1.0 for number in range(6)})
    assert len(written(file)[-1]["values"]) == 16


def test_steps_do_not_decrease(file: Path):
    reporter = Reporter()
    reporter.report(3, loss=1.0)
    with pytest.raises(ValueError, match=r"report\(step=2\): expected a step not below the last one, 3\.0"):
        reporter.report(2, loss=1.0)
    for step in (math.nan, math.inf):
        with pytest.raises(ValueError, match="expected a finite step"):
            reporter.report(step, loss=1.0)
    reporter.report(3, loss=2.0)
    assert [line["step"] for line in written(file)] == [3.0, 3.0]


def test_what_is_not_finite_is_left_out_and_said_once(file: Path, capsys: pytest.CaptureFixture[str]):
    reporter = Reporter()
    reporter.report(1, loss=math.nan, accuracy=0.1)
    reporter.report(2, loss=math.inf, accuracy=0.1)
    reporter.report(3, loss=torch.tensor(-math.inf))
    assert [(line["step"], line["values"]) for line in written(file)] == [
        (1.0, {"accuracy": 0.1}),
        (2.0, {"accuracy": 0.1}),
    ]
    [warning] = capsys.readouterr().err.splitlines()
    assert "report(step=1): loss is nan and left out" in warning


def test_only_rank_0_reports(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RANK", "1")
    Reporter().report(1, loss=1.0)
    Reporter().report("nonsense")  # type: ignore[arg-type]
    assert not file.exists()
    monkeypatch.setenv("RANK", "0")
    Reporter().report(1, loss=1.0)
    assert len(written(file)) == 1


def test_torch_distributed_knows_the_rank_best(file: Path, monkeypatch: pytest.MonkeyPatch):
    met = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 1, get_world_size=lambda: 2
    )
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=met))
    Reporter().report(1, loss=1.0)
    assert not file.exists()


def test_without_an_agent_reports_are_checked_and_go_nowhere(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SANJAYA_REPORTS")
    reporter = Reporter()
    reporter.report(2, loss=1.0)
    with pytest.raises(ValueError, match="not below the last one"):
        reporter.report(1, loss=1.0)
    assert not file.exists()


def test_a_report_that_cannot_be_written_does_not_end_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("SANJAYA_REPORTS", str(tmp_path / "gone" / "reports.jsonl"))
    Reporter().report(1, loss=1.0)
    assert "report(step=1) is lost: [Errno 2]" in capsys.readouterr().err


def test_parameters_come_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SANJAYA_TRIAL_PARAMS", raising=False)
    assert parameters() == {}
    monkeypatch.setenv("SANJAYA_TRIAL_PARAMS", '{"lr": 0.01, "hidden": 32, "optimizer": "sgd", "nesterov": true}')
    assert parameters() == {"lr": 0.01, "hidden": 32, "optimizer": "sgd", "nesterov": True}


@pytest.mark.parametrize("text", ["", "lr=0.01", "[0.01]", "3", "null"])
def test_parameters_that_are_no_object_are_named(text: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SANJAYA_TRIAL_PARAMS", text)
    with pytest.raises(ValueError, match=r"SANJAYA_TRIAL_PARAMS is .* expected a JSON object"):
        parameters()
