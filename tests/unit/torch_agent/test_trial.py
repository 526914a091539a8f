"""A trial's end inside its process, and what is looked at before it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from torch_agent.data_check import Request, answer
from torch_agent.harness import beforehand, trial
from torch_agent.harness.trial import Trial, Validation

SCHEMA = '{"type": "object", "properties": {"age": {"type": "integer", "minimum": 0}}, "required": ["age"]}'


def ends(work: object) -> bool:
    """Whether the process would end in it, and well."""
    try:
        work()  # type: ignore[operator]
    except SystemExit as end:
        assert end.code == 0
        return True
    return False


def test_without_a_validation_it_ends_at_the_last_of_its_mini_batches():
    over = Trial(3)
    assert [ends(over.boundary) for _ in range(3)] == [False, False, True]


def test_with_one_the_epoch_is_over_and_it_ends_when_the_script_trains_on_behind_its_validation():
    over = Trial(2)
    batches = Validation(range(10), over)
    over.boundary()
    assert not over.batch_requested()
    assert not ends(over.boundary)
    assert over.batch_requested(), "its loader has none left"
    assert list(batches) == [0, 1], "the validation is cut short as well"
    assert ends(over.batch_requested)


def test_a_validation_that_came_first_was_one():
    over = Trial(1)
    assert list(Validation(range(10), over)) == [0]
    assert not over.batch_requested()
    assert ends(over.boundary)


def test_a_validation_that_the_script_leaves_early_is_over():
    over = Trial(3)
    for _ in Validation(range(10), over):
        break
    assert not over.is_validating


def test_a_script_without_loaders_that_trains_on_ends_at_its_next_mini_batch():
    over = Trial(1)
    Validation(range(10), over)
    assert not ends(over.boundary)
    assert ends(over.boundary)


def test_without_a_trial_a_validation_is_its_batches():
    batches = Validation([1, 2, 3], None)
    assert (list(batches), list(batches), len(batches)) == ([1, 2, 3], [1, 2, 3], 3)


@pytest.mark.parametrize(("text", "steps"), [("", None), ("0", None), ("7", 7), ("many", None)])
def test_the_agent_says_by_a_variable_that_a_process_is_a_trial(
    monkeypatch: pytest.MonkeyPatch, text: str, steps: int | None
):
    monkeypatch.setenv(trial.TRIAL_STEPS, text)
    found = trial.ordered()
    assert (found.steps if found is not None else None) == steps


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (["python", "train.py", "--lr", "1"], ("train.py", "")),
        (["python3.11", "-u", "-X", "dev", "-W", "error", "train.py"], ("train.py", "")),
        (["python", "-m", "package.train"], ("", "package.train")),
        (["python", "-c", "import this"], ("", "")),
        (["python", "-"], ("", "")),
        (["python"], ("", "")),
    ],
)
def test_which_file_a_command_line_of_the_interpreter_runs(command: list[str], found: tuple[str, str]):
    assert beforehand.script_of(command) == found


def looked_at(folder: Path, script: str, **others: str) -> subprocess.CompletedProcess[str]:
    """Run a script as the command of a trial."""
    (folder / "train.py").write_text(script)
    for name, text in others.items():
        (folder / f"{name}.py").write_text(text)
    command = [sys.executable, beforehand.__file__, sys.executable, "train.py", "--lr", "1"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_script_in_which_nothing_is_found_is_run_as_it_would_have_been(tmp_path: Path):
    ran = looked_at(tmp_path, "import sys, helper\nprint(__name__, sys.argv, sys.path[0])", helper="import json\n")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == f"__main__ ['train.py', '--lr', '1'] {tmp_path}\n"


def test_a_line_that_does_not_compile_is_said_before_anything_is_run(tmp_path: Path):
    ran = looked_at(tmp_path, "print('running')\nif True\n    pass\n")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "SyntaxError: " in ran.stderr and 'File "train.py", line 2' in ran.stderr


def test_so_is_one_in_a_module_beside_the_script(tmp_path: Path):
    ran = looked_at(tmp_path, "print('running')\nimport helper\n", helper="def f(:\n")
    assert (ran.returncode, ran.stdout) == (1, "") and "helper.py" in ran.stderr and "SyntaxError: " in ran.stderr


def test_an_import_that_cannot_be_found_is_said_with_its_line(tmp_path: Path):
    ran = looked_at(tmp_path, "print('running')\nimport no_such_module_anywhere.part\n")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'no_such_module_anywhere'"
    assert 'File "train.py", line 2, in <module>' in ran.stderr


def test_one_that_may_fail_is_left_to_the_script(tmp_path: Path):
    script = "try:\n    import no_such_module_anywhere\nexcept ImportError:\n    print('without')\n"
    assert looked_at(tmp_path, script).stdout == "without\n"


def test_data_is_compared_and_a_violation_has_file_row_and_column(tmp_path: Path):
    (tmp_path / "a.jsonl").write_text('{"age": 3}\n{"age": -1}\n')
    found = answer(Request(data_schema=SCHEMA, data=[str(tmp_path / "*.jsonl")])).report
    assert found is not None and found.rows == 2
    [violation] = found.violations
    assert (Path(violation.file).name, violation.row, violation.column) == ("a.jsonl", 2, "age")


def test_a_path_that_is_not_there_is_the_jobs_fault(tmp_path: Path):
    found = answer(Request(data_schema=SCHEMA, data=[str(tmp_path / "no.jsonl")]))
    assert found.report is None and "no.jsonl" in found.wrong
