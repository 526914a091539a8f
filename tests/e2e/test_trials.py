"""Wide jobs in a whole cell: what fails at its beginning fails in a trial on one GPU, and what does not, runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client
from libs.contracts.admission import TrialFailed, TrialPassed
from libs.contracts.agent import DataChecked, JobExited
from libs.contracts.cluster import width_of
from libs.contracts.failure_analysis import FailureClassified, JobAbandoned, RetryScheduled
from libs.contracts.placement import JobPlaced, JobSucceeded
from libs.testing.leftovers import nothing_left_of
from libs.testing.thorough import cases
from tests.e2e.checking import checked, sanjaya

pytestmark = [pytest.mark.e2e, pytest.mark.thorough]

SCRIPT = Path(__file__).with_name("trial_script.py")
WIDE = 8
EPOCH = 1000
"""Mini-batches of the job that fails in its validation."""
PAUSE_S = 0.3
"""Of each of them."""
ANY = (0, 1, 2)
"""Exit statuses of `wait`, however the job ends."""
SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
    "required": ["id", "age"],
}


@pytest.fixture(scope="module", params=cases("embedded", thorough=("kafka",)))
def cell(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Cell]:
    folder = tmp_path_factory.mktemp("trials")
    plan = CellPlan(
        state_dir=folder / "cell",
        agents=1,
        gpus_per_agent=WIDE,
        gateway_port=free_port(),
        kafka="" if request.param == "kafka" else None,
    )
    with Cell(plan) as running:
        sanjaya(running, "settings", "set", "admission.trial_above_gpus", "4")
        yield running
    assert nothing_left_of(folder) == []


def submit(cell: Cell, *command: str, gpus: int = WIDE, options: tuple[str, ...] = ()) -> str:
    return sanjaya(
        cell, "submit", "--gpus", str(gpus), "--max-retries", "3", "--no-upload", *options, "--", "python", *command
    ).strip()


def ended(cell: Cell, job_id: str) -> list[Any]:
    """Wait for the job's end; what is on the log about it, in order, after the log was checked."""
    sanjaya(cell, "wait", job_id, accepted=ANY)
    path = cell.plan.state_dir.parent / f"{job_id}.jsonl"
    with Client(cell.plan.gateway_url) as client:
        path.write_bytes(b"".join(client.export()))
    return [each.event for each in checked(path) if each.event.subject == job_id]


def of(said: list[Any], *types: type) -> list[Any]:
    return [event for event in said if isinstance(event, types)]


def gpu_s(cell: Cell, job_id: str) -> float:
    found: float = json.loads(sanjaya(cell, "show", job_id, "--json"))["gpu_s"]
    return found


def widths(said: list[Any]) -> list[int]:
    return [width_of(placed.gang) for placed in of(said, JobPlaced)]


def failed_in_its_trial(said: list[Any]) -> TrialFailed:
    """The job had one GPU, once, and was not tried again."""
    assert widths(said) == [1] and of(said, RetryScheduled) == []
    [failed] = of(said, TrialFailed)
    assert isinstance(failed, TrialFailed) and len(of(said, JobAbandoned)) == 1
    return failed


def test_a_bug_in_the_second_mini_batch_costs_a_small_part_of_what_it_costs_without_a_trial(cell: Cell):
    tried = submit(cell, str(SCRIPT), "batch")
    failed = failed_in_its_trial(ended(cell, tried))
    assert failed.steps >= 1 and "expected 5 features" in sanjaya(cell, "show", tried)
    without = submit(cell, str(SCRIPT), "batch", options=("--trial", "0", "--max-retries", "0"))
    assert widths(ended(cell, without)) == [WIDE]
    ratio = gpu_s(cell, tried) / gpu_s(cell, without)
    print(f"{gpu_s(cell, tried):.1f} GPU seconds with a trial, {gpu_s(cell, without):.1f} without: {ratio:.1%}")
    assert ratio <= 0.15


def test_a_bug_in_the_validation_behind_a_long_epoch_is_found_in_the_trial(cell: Cell):
    job = submit(cell, str(SCRIPT), "validation", "--batches", str(EPOCH), "--pause", str(PAUSE_S))
    failed = failed_in_its_trial(ended(cell, job))
    assert failed.steps == 3
    ratio = gpu_s(cell, job) / (WIDE * EPOCH * PAUSE_S)
    print(f"{gpu_s(cell, job):.1f} GPU seconds: {ratio:.2%} of those of one epoch on {WIDE} GPUs")
    assert failed.steps / (WIDE * EPOCH) < 0.01  # in mini-batches of one GPU: seconds are those of a busy machine


def test_a_job_that_needs_eight_gpus_for_its_memory_is_not_failed(cell: Cell):
    said = ended(cell, submit(cell, str(SCRIPT), "memory"))
    assert widths(said) == [1, WIDE] and len(of(said, JobSucceeded)) == 1
    [passed] = of(said, TrialPassed)
    assert passed.reason.code == "TrialExcused" and "gpu_out_of_memory" in passed.reason.message


def test_a_trial_survives_the_loss_of_admission_and_its_job_runs_whole(cell: Cell):
    job = submit(cell, str(SCRIPT), "none", "--batches", "4")
    cell.kill("admission")
    said = ended(cell, job)
    assert widths(said) == [1, WIDE] and len(of(said, JobSucceeded)) == 1
    [passed] = of(said, TrialPassed)
    assert (passed.steps, passed.reason.code) == (3, "TrialPassed")
    story = sanjaya(cell, "story", job)
    assert "a trial comes first: jobs of its width run 3 mini-batches on 1 GPU first" in story
    assert "trial passed" in story


def test_an_import_that_cannot_be_found_is_said_before_the_script_runs(cell: Cell, tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text("import time\nimport no_such_module_anywhere\n")
    said = ended(cell, submit(cell, str(script)))
    failed_in_its_trial(said)
    [classified] = of(said, FailureClassified)
    assert classified.failure == "import_error"
    [exited] = of(said, JobExited)
    assert exited.ran_s < 30.0


@pytest.mark.parametrize(
    ("name", "lines", "row", "column"),
    [
        ("type", ['{"id": 1, "age": 20}', '{"id": 2, "age": "old"}'], 2, "age"),
        ("range", ['{"id": 1, "age": 20}', '{"id": 2, "age": 21}', '{"id": 3, "age": 200}'], 3, "age"),
        ("column", ['{"id": 1, "years": 20}'], 1, "age"),
        ("truncated", ['{"id": 1, "age": 20}', '{"id": 2, "a'], 2, ""),
    ],
)
def test_data_that_is_not_as_its_schema_says_fails_the_trial_with_file_and_row(
    cell: Cell, tmp_path: Path, name: str, lines: list[str], row: int, column: str
):
    schema, data = tmp_path / "schema.json", tmp_path / f"{name}.jsonl"
    schema.write_text(json.dumps(SCHEMA))
    data.write_text("\n".join(lines) + "\n")
    said = ended(cell, submit(cell, str(SCRIPT), "none", options=("--data-schema", str(schema), "--data", str(data))))
    failed = failed_in_its_trial(said)
    assert (failed.failure, failed.steps) == ("incorrect_inputs", 0)
    [check] = of(said, DataChecked)
    first = check.violations[0]
    assert (first.file, first.row, first.column) == (str(data), row, column)
    [exited] = of(said, JobExited)
    assert str(data) in exited.stderr_tail and f"row {row}" in exited.stderr_tail
