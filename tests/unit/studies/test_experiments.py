"""Grids of runs, and running them: nothing is run twice, and no run fails because another does."""

from __future__ import annotations

import csv
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from libs.contracts.bad_input import BadInput
from libs.studies.experiments.cells import (
    CELLS,
    RUNS,
    SUMMARY,
    Outcome,
    read_result,
    read_results,
    result_file,
    run_cells,
    write_overview,
)
from libs.studies.experiments.grids import FORMAT, parse_grid, read_grid
from libs.studies.experiments.runs import RunSpec, label
from libs.studies.generators.gavel import GavelWorkload

WORKLOAD = GavelWorkload(jobs=3)


def runs(count: int) -> list[RunSpec]:
    return [RunSpec(policy="fifo", workload=WORKLOAD, seed=seed) for seed in range(count)]


def document(spec: RunSpec) -> dict[str, Any]:
    return {
        "format": "simulation-result/1",
        "policy": spec.policy,
        "seed": spec.seed,
        "jobs": [],
        "summary": {"jobs": 3, "completed": 3, "avg_jct_s": 10.0 * spec.seed},
    }


# Played in processes of their own, so they must be functions of this module.


def succeeds(spec: RunSpec) -> dict[str, Any]:
    return document(spec)


def fails_for_seed_1(spec: RunSpec) -> dict[str, Any]:
    if spec.seed == 1:
        raise ValueError("bad luck")
    return document(spec)


def dies_for_seed_1(spec: RunSpec) -> dict[str, Any]:
    if spec.seed == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return document(spec)


def never_ends(spec: RunSpec) -> dict[str, Any]:
    print(os.getpid(), flush=True)
    signal.pause()
    return document(spec)


def must_not_be_played(spec: RunSpec) -> dict[str, Any]:
    raise AssertionError(f"{spec.cell_id} was played again")


def test_every_run_has_a_result_of_its_own(tmp_path: Path):
    told: list[int] = []
    outcome = run_cells(runs(3), tmp_path, succeeds, processes=2, told=lambda now: told.append(now.finished))
    assert (outcome.done, outcome.reused, outcome.failed, outcome.running) == (3, 0, {}, ())
    assert told[0] == 0 and told[-1] == 3 and told == sorted(told)
    assert [result.document["seed"] for result in read_results(runs(3), tmp_path)] == [0, 1, 2]


def test_what_is_there_is_not_run_again(tmp_path: Path):
    run_cells(runs(2), tmp_path, succeeds, processes=2)
    outcome = run_cells(runs(2), tmp_path, must_not_be_played)
    assert (outcome.done, outcome.reused, outcome.failed) == (0, 2, {})
    asked = run_cells(runs(1), tmp_path, succeeds, again=True)
    assert (asked.done, asked.reused) == (1, 0), "unless one asks for it"


def test_an_interrupted_experiment_goes_on(tmp_path: Path):
    first, second = runs(2)
    run_cells([first], tmp_path, succeeds)
    half = result_file(tmp_path, second)
    half.write_text('{"format": "simulation-re')
    half.with_suffix(".77.partial").write_text("{")
    outcome = run_cells([first, second], tmp_path, succeeds)
    assert (outcome.done, outcome.reused) == (1, 1)
    assert read_result(tmp_path, second) is not None


def test_a_failure_costs_the_others_nothing(tmp_path: Path):
    outcome = run_cells(runs(3), tmp_path, fails_for_seed_1, processes=2)
    assert (outcome.done, outcome.finished) == (2, 3)
    assert outcome.failed == {runs(3)[1].cell_id: "ValueError: bad luck"}
    again = run_cells(runs(3), tmp_path, succeeds)
    assert (again.done, again.reused) == (1, 2), "and it is tried again"


def test_a_process_that_dies_costs_the_others_nothing(tmp_path: Path):
    outcome = run_cells(runs(2), tmp_path, dies_for_seed_1, processes=1)
    assert outcome.done == 1
    assert outcome.failed == {runs(2)[1].cell_id: "the process died, exit code -9"}
    assert not list((tmp_path / CELLS).glob("*.partial"))


def test_a_run_ends_with_the_process_that_has_begun_it(tmp_path: Path):
    ours = "tests.unit.studies.test_experiments"
    code = (
        f"from {ours} import never_ends, run_cells, runs; import sys; run_cells(runs(1), Path(sys.argv[1]), never_ends)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", f"from pathlib import Path; {code}", str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as study:
        assert study.stdout is not None
        ended = os.pidfd_open(int(study.stdout.readline()))
        study.kill()
        assert select.select([ended], [], [], 120.0)[0] == [ended]
        os.close(ended)


def test_the_overview_names_runs_and_failures(tmp_path: Path):
    specs = runs(2)
    run_cells(specs[:1], tmp_path, succeeds)
    write_overview(specs, tmp_path, Outcome(2, done=1, failed={specs[1].cell_id: "it broke"}))
    listed = json.loads((tmp_path / RUNS).read_text())
    assert [(row.get("seed", 0), row["error"]) for row in listed] == [(0, None), (1, "it broke")]
    with (tmp_path / SUMMARY).open() as file:
        (row,) = csv.DictReader(file)
    assert (row["policy"], row["avg_jct_s"], row["cell"]) == ("fifo", "0.0", specs[0].cell_id)


def test_a_run_needs_one_source_of_jobs():
    with pytest.raises(ValueError, match="a workload or a trace"):
        RunSpec(policy="fifo")
    with pytest.raises(ValueError, match="a workload or a trace"):
        RunSpec(policy="fifo", workload=WORKLOAD, trace="t.csv")


def test_different_runs_have_different_names_and_defaults_do_not_matter():
    plain = RunSpec(policy="fifo", workload=WORKLOAD)
    others = [
        RunSpec(policy="fifo", workload=WORKLOAD, seed=1),
        RunSpec(policy="fifo", workload=GavelWorkload(jobs=4)),
        RunSpec(policy="fifo", workload=WORKLOAD, round_s=60.0),
        RunSpec(policy="fifo", workload=WORKLOAD, tenant_weights={"a": 2.0}),
    ]
    assert len({spec.cell_id for spec in [plain, *others]}) == 5
    assert RunSpec(policy="fifo", workload=WORKLOAD, round_s=360.0, seed=0).cell_id == plain.cell_id
    assert plain.cell_id.startswith("fifo-5-per-h-s0-")


def test_labels_name_what_changes_the_optimum():
    assert label("fifo") == "fifo"
    assert label("fifo", heterogeneity_agnostic=True, space_sharing=True) == "fifo, agnostic, space sharing"


GRID = {
    "format": FORMAT,
    "name": "las",
    "workload": {"kind": "continuous-single", "jobs": 30},
    "cluster": "v100=2,k80=2",
    "measure": [10, 20],
    "policies": ["max_min_fairness", {"policy": "max_min_fairness", "heterogeneity_agnostic": True}],
    "jobs_per_hour": [0.5, 1],
    "seeds": [0, 1, 2],
    "vary": {"round_s": [360, 720]},
}


def test_a_grid_is_every_combination_of_its_axes():
    grid = parse_grid(GRID, "las.yaml", warn=pytest.fail)
    assert grid.name == "las" and len(grid.runs) == 24
    first, last = grid.runs[0], grid.runs[-1]
    assert (first.label, first.jobs_per_hour, first.seed, first.round_s) == ("max_min_fairness", 0.5, 0, 360)
    assert (last.label, last.jobs_per_hour, last.seed, last.round_s) == ("max_min_fairness, agnostic", 1.0, 2, 720)
    assert first.gpus == {"v100": 2, "k80": 2} and first.measure == (10, 20)


def test_loads_are_parts_of_what_can_be_sustained():
    without = {key: value for key, value in GRID.items() if key not in ("jobs_per_hour", "vary")}
    half, whole = parse_grid(without | {"loads": [0.5, 1.0], "seeds": [0], "policies": ["fifo"]}, "g").runs
    assert half.jobs_per_hour is not None and whole.jobs_per_hour == pytest.approx(2 * half.jobs_per_hour)


def test_a_grid_is_read_from_a_file_and_paths_begin_there(tmp_path: Path):
    (tmp_path / "g.yaml").write_text(f"format: {FORMAT}\ntrace: jobs.csv\npolicies: [backfill]\n")
    (spec,) = read_grid(tmp_path / "g.yaml").runs
    assert spec.trace == str(tmp_path / "jobs.csv") and spec.seed == 0


def test_unknown_fields_are_ignored_with_a_warning():
    told: list[str] = []
    extra = {**GRID, "colour": "blue", "workload": {"jobs": 3, "size": 4}}
    parse_grid(extra, "g", warn=told.append)
    assert [sentence.split(" is ")[0] for sentence in told] == ["g: $.colour", "g: $.workload.size"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"format": "experiment/2"}, r"\$\.format: 'experiment/2'; expected 'experiment/1'"),
        ({"policies": []}, r"\$\.policies: \[\]; expected a list, not empty"),
        ({"policies": ["magic"]}, r"\$\.policies\[0\]: 'magic'; expected one of .*fifo"),
        ({"policies": [{"policy": "fifo", "speed": 3}]}, r"\$\.policies\[0\]: unknown option 'speed'"),
        ({"vary": {"round_s": 360}}, r"\$\.vary\.round_s: 360; expected a list"),
        ({"vary": {"rounds": [1]}}, r"\$\.vary: unknown option 'rounds'"),
        ({"jobs_per_hour": [0]}, r"\$\.jobs_per_hour: 0; expected numbers above 0"),
        ({"loads": [0.5]}, r"\$\.loads: given beside jobs_per_hour"),
        ({"seeds": [0.5]}, r"\$\.seeds: 0\.5; expected whole numbers"),
        ({"workload": {"kind": "bursty"}}, r"\$\.workload\.kind: 'bursty'"),
        ({"workload": {"kind": "static"}}, r"\$\.jobs_per_hour: given; expected nothing"),
        ({"gpus_per_server": "four"}, r"\$\.gpus_per_server: .*int"),
        ({"cluster": "v100"}, "--cluster: 'v100'"),
        ({"trace": "t.csv"}, "a workload or a trace"),
    ],
)
def test_a_grid_that_cannot_be_understood(change: dict[str, Any], sentence: str):
    with pytest.raises(BadInput, match=sentence):
        parse_grid({**GRID, **change}, "g.yaml", warn=lambda _: None)


def test_a_file_that_is_no_grid(tmp_path: Path):
    (tmp_path / "g.yaml").write_text("a: [1")
    with pytest.raises(BadInput, match="expected YAML of"):
        read_grid(tmp_path / "g.yaml")
    with pytest.raises(BadInput, match="expected an object"):
        parse_grid([], "g")
