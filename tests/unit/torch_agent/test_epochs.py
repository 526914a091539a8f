"""The losses of epochs, as a loader and backward passes show them; and the checkpoint of the best one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch_agent.harness import epochs
from torch_agent.harness.best import BestCheckpoint
from torch_agent.harness.epochs import EpochLosses
from torch_agent.harness.moving.checkpoints import Checkpoints
from torch_agent.harness.reporting import Reporter

TRAINED, EVALUATED = object(), object()
"""Two loaders."""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Reporter:
    """Whose reports stand in for those of a script in this process."""
    reporter = Reporter()
    monkeypatch.setattr(epochs, "REPORTER", reporter)
    return reporter


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "reports.jsonl"
    monkeypatch.setenv("SANJAYA_REPORTS", str(path))
    monkeypatch.delenv("RANK", raising=False)
    return path


def written(file: Path) -> list[tuple[float, dict[str, float]]]:
    lines = file.read_text().splitlines() if file.exists() else []
    return [(told["step"], told["values"]) for told in map(json.loads, lines)]


def epoch(seen: EpochLosses, *losses: float) -> None:
    """With an evaluation in the middle and one behind it."""
    for number, loss in enumerate(losses):
        seen.drawn(TRAINED)
        seen.backward(torch.tensor(loss))
        if number == 0:
            seen.drawn(EVALUATED)
            seen.exhausted(EVALUATED)
    seen.exhausted(TRAINED)
    seen.exhausted(EVALUATED)


def test_an_epoch_is_told_when_the_script_goes_on(file: Path, script: Reporter):
    seen = EpochLosses("loss", tells=True)
    epoch(seen, 4.0, 2.0)
    assert (seen.done, seen.latest(), written(file)) == (1, 3.0, [])
    epoch(seen, 1.0, 0.5)
    assert written(file) == [(1, {"loss": 3.0})]
    seen.tell()
    assert written(file) == [(1, {"loss": 3.0}), (2, {"loss": 0.75})]


def test_a_loss_that_the_script_reports_itself_counts_in_its_place(file: Path, script: Reporter):
    seen = EpochLosses("loss", tells=True)
    for number in range(2):
        epoch(seen, 4.0, 2.0)
        script.report(number, loss=0.25)
    seen.tell()
    assert written(file) == [(0, {"loss": 0.25}), (1, {"loss": 0.25})] and seen.latest() == 0.25


def test_epochs_that_are_not_to_be_told_are_known(file: Path, script: Reporter):
    seen = EpochLosses("loss", tells=False)
    epoch(seen, 4.0)
    seen.tell()
    assert seen.latest() == 4.0 and written(file) == []


def kept(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder / "best")) for path in (folder / "best").glob("*/*"))


def best_of(folder: Path) -> BestCheckpoint:
    best = BestCheckpoint(str(folder), 0, lambda: None, alike=False)
    best.claim()
    return best


def test_the_checkpoint_of_the_best_epoch_is_kept_and_no_other(tmp_path: Path):
    best = best_of(tmp_path)
    for batches, loss in ((10, 2.0), (20, 1.0), (30, 1.5), (40, float("nan")), (50, None)):
        best.keep(lambda batches=batches: {"weights": torch.tensor(batches)}, batches, loss)
    assert kept(tmp_path) == ["attempt-0/job-20"]
    again = Checkpoints(str(tmp_path / "best"), 0, lambda: None)
    again.claim()
    assert again.load() == {"weights": torch.tensor(20)}


def test_an_attempt_that_begins_again_knows_the_best_loss_of_the_one_before(tmp_path: Path):
    best_of(tmp_path).keep(lambda: {"weights": torch.tensor(1)}, 50, 1.0)
    again = best_of(tmp_path)
    again.keep(lambda: {"weights": torch.tensor(2)}, 10, 2.0)
    assert kept(tmp_path) == ["attempt-0/job-50"]
    again.keep(lambda: {"weights": torch.tensor(3)}, 20, 0.5)
    assert kept(tmp_path) == ["attempt-0/job-20"]


def test_the_best_loss_of_versions_before_attempts_had_folders_counts_on(tmp_path: Path, monkeypatch):
    (tmp_path / "best" / "job-50").mkdir(parents=True)
    (tmp_path / "best" / "loss.json").write_text('{"loss": 1.0, "batches_done": 50}')
    monkeypatch.setenv("SANJAYA_ATTEMPT", "2")
    best = best_of(tmp_path)
    best.keep(lambda: {"weights": torch.tensor(2)}, 10, 2.0)
    assert kept(tmp_path) == [] and (tmp_path / "best" / "job-50").exists()
    best.keep(lambda: {"weights": torch.tensor(3)}, 20, 0.5)
    assert kept(tmp_path) == ["attempt-2/job-20"] and not (tmp_path / "best" / "job-50").exists()
