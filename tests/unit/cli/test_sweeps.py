"""`sanjaya sweep`: from a file to a request, and from answers to words and pictures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console
from typer.testing import CliRunner

from libs.cli import sweep_following, sweeps
from libs.cli.main import app_for
from libs.cli.output import Form, cells_of
from libs.cli.spec import from_file, sweep_from_file
from libs.cli.sweep_drawing import drawing
from libs.cli.sweep_following import followed, outcome, screen, sentence
from libs.cli.sweep_views import described, most_interesting, summary, trial_columns
from libs.contracts.bad_input import BadInput

SWEEP = """
name: digits
trial: {command: "python train.py --lr {lr}", gpus: 1}
space:
  lr: {type: float, low: 1e-4, high: 1.0, log: true}
  hidden: {type: int, low: 16, high: 128}
objective: {metric: accuracy, direction: maximize, target: 9.5E-1}
trials: 8
"""


def trial(number: int, state: str = "RUNNING", **fields: Any) -> dict[str, Any]:
    return {
        "number": number,
        "job_id": f"j-{number}",
        "parameters": {"lr": 0.01234567 * (number + 1), "optimizer": "adam"},
        "state": state,
        "job_state": "RUNNING",
        "priority": 0,
        "favourite": False,
        "reason": "",
        "message": "",
        "reports": 2,
        "best_value": 0.5 + number / 100,
        "last_step": 2.0,
        "last_value": 0.5,
    } | fields


def sweep(*trials: dict[str, Any], state: str = "RUNNING", **fields: Any) -> dict[str, Any]:
    """As the gateway answers it."""
    counts: dict[str, int] = {}
    for each in trials:
        counts[each["state"]] = counts.get(each["state"], 0) + 1
    spec = {
        "space": {"lr": {}, "optimizer": {}},
        "trial": {"command": ["python", "train.py", "{lr}"]},
        "sampler": "tpe",
        "pruner": "curve",
        "at_once": 4,
        "favourites": 2,
    }
    return {
        "id": "s-1",
        "name": "digits",
        "tenant": "default",
        "user": "ada",
        "state": state,
        "reason": "Accepted",
        "message": "8 trials at most",
        "metric": "accuracy",
        "direction": "maximize",
        "target": 0.95,
        "planned": 8,
        "counts": counts,
        "best_trial": 1,
        "best_value": 0.51,
        "best_parameters": {"lr": 0.02469134, "optimizer": "adam"},
        "submitted_s": 100.0,
        "ended_s": None if state == "RUNNING" else 190.0,
        "submitted_by": "ada",
        "spec": spec,
        "trials": list(trials),
    } | fields


CURVES = {
    "metric": "accuracy",
    "trials": [
        {"number": 0, "points": [{"step": 1, "value": 0.5, "time_s": 5.0}]},
        {"number": 1, "points": [{"step": s, "value": 0.4 + s / 20, "time_s": 10.0 * s} for s in (1, 2, 3)]},
    ],
    "best": [{"number": 0, "value": 0.5, "time_s": 5.0}, {"number": 1, "value": 0.55, "time_s": 30.0}],
}


def test_numbers_may_be_written_as_yaml_1_2_has_them(tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(SWEEP)
    found = sweep_from_file(str(path))
    assert found["space"]["lr"] == {"type": "float", "low": 0.0001, "high": 1.0, "log": True}
    assert (found["objective"]["target"], found["trial"]["command"]) == (0.95, "python train.py --lr {lr}")
    path.write_text("command: [train, 1e-3x, e3]\ntotal_steps: -1.5e+6\n")
    assert from_file(str(path)) == {"command": ["train", "1e-3x", "e3"], "total_steps": -1.5e6}


@pytest.mark.parametrize("text", ["- a list", "{", "name: x", "trial: python train.py"])
def test_a_file_that_is_no_sweep_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(text)
    with pytest.raises(BadInput, match=r"sweep\.yaml"):
        sweep_from_file(str(path))


class Uploads:
    """A cell that has no upload yet."""

    def __init__(self) -> None:
        self.sent = 0

    def upload_limits(self) -> dict[str, int]:
        return {"files": 10, "unpacked_bytes": 1000, "packed_bytes": 1000}

    def has_code(self, code_id: str) -> bool:
        return False

    def upload_code(self, archive: bytes) -> str:
        self.sent += 1
        return "c-sent"


def test_flags_go_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(SWEEP.replace("gpus: 1", "gpus: 1, working_dir: /data"))
    monkeypatch.setattr(sweeps, "signed", lambda cell, trial: {"user": "ada", **trial})
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("print(1)")
    cell = Uploads()
    request = sweeps.build(cell, str(path), "other", code)  # type: ignore[arg-type]
    assert request["name"] == "other"
    assert request["trial"] == {"user": "ada", "command": "python train.py --lr {lr}", "gpus": 1, "code_id": "c-sent"}
    assert sweeps.build(cell, str(path), None, None)["trial"]["working_dir"] == "/data"  # type: ignore[arg-type]
    assert cell.sent == 1
    path.write_text(SWEEP.replace('command: "python train.py --lr {lr}"', "command: 7"))
    request = sweeps.build(cell, str(path), None, code)  # type: ignore[arg-type]
    assert request["trial"]["command"] == 7, "the gateway says what is wrong with it"


@pytest.mark.parametrize("arguments", [["sweep"], ["sweep", "-f", "x.yaml", "show", "s-1"], ["sweep", "show"]])
def test_what_is_not_meant_is_refused_before_a_cell_is_asked(arguments: list[str]) -> None:
    done = CliRunner().invoke(app_for(), arguments)
    assert done.exit_code == 2


def test_a_picture_needs_a_name_that_says_its_form(tmp_path: Path) -> None:
    done = CliRunner().invoke(app_for(), ["sweep", "plot", "s-1", "--out", str(tmp_path / "curves.pdf")])
    assert done.exit_code == 2 and "ends in .svg or .png" in done.stderr


def test_a_sweep_in_words() -> None:
    text = "\n".join(described(sweep(trial(0), trial(1, "PRUNED"), state="EXHAUSTED")))
    assert "looks for  most accuracy, at least 0.95" in text
    assert "best       0.51 by trial 1 (lr=0.02469 optimizer=adam)" in text
    assert "how        tpe, pruned by curve, at most 4 at once, 2 go first" in text
    assert "trials     2 of 8 trials: 1 running, 1 pruned\n" in text
    assert "took       1m" in text
    nothing = sweep(best_value=None, best_trial=None, best_parameters={}, direction="minimize", target=None)
    assert summary(nothing) == "RUNNING: 0 of 8 trials: none yet"
    assert "looks for  least accuracy" in described(nothing)


def test_a_trial_is_as_its_job_is_until_it_is_pruned_or_over() -> None:
    found = sweep(
        trial(0, job_state="QUEUED", favourite=True, last_step=None, last_value=None, best_value=None),
        trial(1, "PRUNED", job_state="STOPPING", message="comes to 0.6"),
        trial(2, "COMPLETED", job_state="SUCCEEDED"),
    )
    heads, cells = cells_of(found["trials"], trial_columns(found), Form.TABLE)
    assert heads == ["TRIAL", "JOB", "lr", "optimizer", "STATE", "STEP", "LAST", "BEST", "WHY"]
    assert cells[0] == ["0*", "j-0", "0.01235", "adam", "QUEUED", "–", "–", "–", ""]
    assert [row[4] for row in cells] == ["QUEUED", "PRUNED", "COMPLETED"]
    assert cells[1][-1] == "comes to 0.6"


def test_of_many_trials_the_most_interesting_are_shown() -> None:
    found = sweep(*(trial(n, "COMPLETED") for n in range(6)), trial(6, best_value=0.1), trial(7, favourite=True))
    assert [t["number"] for t in most_interesting(found, 4)] == [4, 5, 6, 7]
    assert [t["number"] for t in most_interesting(found | {"direction": "minimize"}, 4)] == [0, 1, 6, 7]
    console = Console(width=120, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(screen(found, 3))
    text = captured.get()
    assert "digits  RUNNING: 8 of 8 trials: 6 completed, 2 running" in text
    assert "and 5 more: sanjaya sweep show s-1" in text


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (sweep(trial(0), state="TARGET_REACHED"), 0),
        (sweep(trial(0), state="EXHAUSTED"), 0),
        (sweep(trial(0, "FAILED"), state="EXHAUSTED", best_value=None), 1),
        (sweep(trial(0, "STOPPED"), state="CANCELLED"), 143),
    ],
)
def test_the_end_of_a_sweep_has_an_exit_code(found: dict[str, Any], code: int) -> None:
    assert outcome(found) == code
    assert sentence(found).startswith(f"s-1 {found['state']}: 8 trials at most; 1 of 8 trials: ")


class Told:
    """A cell with answers that are known beforehand."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self._answers: Iterator[dict[str, Any]] = iter(answers)

    def sweep(self, sweep_id: str) -> dict[str, Any]:
        assert sweep_id == "s-1"
        return next(self._answers)


def test_a_pipe_is_told_what_changes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_following, "ASK_EVERY_S", 0.0)
    first, more, end = sweep(best_value=None), sweep(trial(0)), sweep(trial(0, "COMPLETED"), state="EXHAUSTED")
    assert followed(Told(first, first, more, more, end), "s-1") is end  # type: ignore[arg-type]
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == [f"s-1 {summary(first)}", f"s-1 {summary(more)}"]


def test_a_terminal_shows_the_trials(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_following, "REDRAW_S", 0.0)
    monkeypatch.setenv("CLICOLOR_FORCE", "1")
    end = sweep(trial(0, "COMPLETED"), state="EXHAUSTED")
    assert followed(Told(sweep(trial(0)), end), "s-1") is end  # type: ignore[arg-type]
    shown = capsys.readouterr().out
    assert "optimizer" in shown and "COMPLETED" in shown


def test_a_sweep_is_drawn(tmp_path: Path) -> None:
    found = sweep(trial(0, "PRUNED"), trial(1, "COMPLETED"), state="EXHAUSTED")
    picture = drawing(found, CURVES)
    best_so_far, learning = picture.figure.axes
    line = best_so_far.lines[0]
    assert list(line.get_xdata()) == [5.0, 30.0, 90.0] and list(line.get_ydata()) == [0.5, 0.55, 0.55]
    curves = [list(line.get_ydata()) for line in learning.lines[:2]]
    assert curves == [[0.5], [0.45, 0.5, 0.55]]
    assert learning.lines[1].get_linewidth() > learning.lines[0].get_linewidth(), "the best trial's"
    ElementTree.fromstring(picture.svg())
