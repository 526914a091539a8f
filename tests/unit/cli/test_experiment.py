"""`sanjaya generate`, `experiment` and `reproduce`: from a description to files, and once more without work."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from libs.cli import reproducing
from libs.cli.reproducing import tell
from libs.sim.throughputs import read_throughputs
from libs.sim.traces import read_trace
from libs.studies.generators.computed_rates import computed_throughputs
from libs.studies.report.verdicts import Row, Verdict

SANJAYA = str(Path(sys.executable).with_name("sanjaya"))
GRID = """
format: experiment/1
name: tiny
workload: {kind: continuous-single, jobs: 8, models: [A3C], duration_choices_s: [600]}
cluster: v100=2
policies: [max_min_fairness, fifo]
loads: [0.5]
keep_intervals: true
"""


def sanjaya(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SANJAYA, *arguments], cwd=folder, capture_output=True, text=True, check=False)


def test_generated_files_can_be_simulated(tmp_path: Path):
    made = sanjaya(
        tmp_path,
        *("generate", "continuous-multiple", "--jobs", "5", "--jobs-per-hour", "20", "--seed", "3", "--slo", "1.2"),
        *("--tenant", "a", "--tenant", "b", "--out", "jobs.csv", "--throughputs-out", "rates.json"),
    )
    assert (made.returncode, made.stdout) == (0, "")
    jobs = read_trace(tmp_path / "jobs.csv", pytest.fail)
    assert len(jobs) == 5 and all(job.deadline_s for job in jobs) and {job.tenant for job in jobs} <= {"a", "b"}
    rates = read_throughputs(tmp_path / "rates.json", pytest.fail)
    assert rates.isolated == computed_throughputs().isolated
    again = sanjaya(tmp_path, *("generate", "continuous-multiple", "--jobs", "5", "--throughputs", "rates.json"))
    assert again.stdout.count("\n") == 6, "a header and five jobs"


def test_an_experiment_is_run_once(tmp_path: Path):
    (tmp_path / "tiny.yaml").write_text(GRID)
    planned = sanjaya(tmp_path, "experiment", "tiny.yaml", "--dry-run")
    assert planned.returncode == 0 and planned.stdout.count("to be run") == 2
    first = sanjaya(tmp_path, "experiment", "tiny.yaml", "-j", "2")
    assert first.returncode == 0, first.stderr
    assert "2 run, 0 were there, 0 failed; in tiny" in first.stderr
    head, *rows = first.stdout.splitlines()
    assert head.split("\t")[:3] == ["POLICY", "JOBS/H", "SEEDS"]
    assert [row.split("\t")[0] for row in rows] == ["max_min_fairness", "fifo"]
    cells = [json.loads(file.read_text()) for file in (tmp_path / "tiny" / "cells").glob("*.json")]
    assert {cell["policy"] for cell in cells} == {"max_min_fairness", "fifo"}
    assert all(cell["format"] == "simulation-result/1" and cell["intervals"] for cell in cells)
    assert "Rounds on every GPU: fifo" in (tmp_path / "tiny" / "report.html").read_text()
    again = sanjaya(tmp_path, "experiment", "tiny.yaml")
    assert "0 run, 2 were there, 0 failed" in again.stderr and again.stdout == first.stdout


def test_a_run_that_fails_is_named_and_the_others_count(tmp_path: Path):
    trace = "job_id,submit_time_s,tenant,model,batch_size,gpus,total_steps,duration_s\na,0,t,A3C,,1,10,\n"
    (tmp_path / "jobs.csv").write_text(trace)
    (tmp_path / "g.yaml").write_text(
        "format: experiment/1\ntrace: jobs.csv\ncluster: v100=1\npolicies: [fifo]\n"
        "vary: {throughputs: [null, missing.json]}\n"
    )
    done = sanjaya(tmp_path, "experiment", "g.yaml", "--out", "out")
    assert done.returncode == 1
    assert "1 run, 0 were there, 1 failed" in done.stderr and "missing.json: No such file" in done.stderr
    assert (tmp_path / "out" / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["generate", "bursty"], "error: kind: 'bursty'; expected one of continuous-single"),
        (["generate", "static", "--out", "no/where.csv"], "there is no directory no"),
        (["experiment", "none.yaml"], "error: none.yaml: No such file"),
        (["reproduce", "tiresias"], "unknown paper 'tiresias'; there are gavel, gandiva, antman, philly and all"),
        (
            ["reproduce", "gandiva", "--throughputs", "t.json"],
            "the study of gandiva has inputs of its own",
        ),
        (["reproduce", "antman", "--throughputs", "t.json"], "that of gavel takes it"),
        (["reproduce", "all", "--reduced"], "the study of all has inputs of its own; that of antman takes it"),
        (["reproduce", "antman", "--reduced", "--full"], "--full and --reduced: expected one of them"),
        (["reproduce", "gavel", "--judge", "--again"], "--judge and --again: expected one of them"),
        (["reproduce", "all", "--known", "m.json"], "--known: a file has the values of one paper"),
        (["reproduce", "gavel", "--known", "none.json"], "expected a measured/1 document"),
        (["reproduce", "gavel", "--only", "fig99"], "no claim begins with fig99; there are fig1-resnet50"),
    ],
)
def test_what_cannot_be_done_is_said(tmp_path: Path, arguments: list[str], sentence: str):
    done = sanjaya(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr


def test_what_a_reproduction_would_run(tmp_path: Path):
    done = sanjaya(tmp_path, "reproduce", "gavel", "--only", "fig11", "--dry-run")
    assert done.returncode == 0
    assert done.stdout.splitlines()[1].startswith("hierarchical-s0-")


def test_an_unfinished_study_is_judged_without_running_anything(tmp_path: Path):
    def verdict(*options: str) -> tuple[str, str, str]:
        done = sanjaya(tmp_path, "reproduce", "gandiva", "--only", "turns-cost", *options)
        assert done.returncode == 0, done.stderr
        (row,) = done.stdout.splitlines()[1:]
        found, why = row.split("\t")[-2:]
        return found, why, done.stderr.splitlines()[-1]

    none_made = "0 run, 0 were there, 0 failed; in reproduced"
    assert verdict("--judge") == ("not measured", "0 of 2 runs made.", none_made)
    assert verdict("-j", "1")[0] == "holds"
    cells = sorted((tmp_path / "reproduced" / "cells").iterdir())
    cells[0].unlink()
    assert verdict("--judge") == (
        "incomplete",
        "1 of 2 runs made.",
        f"0 run, {len(cells) - 1} were there, 0 failed; in reproduced",
    )


def test_a_study_makes_only_the_runs_whose_values_are_not_known(tmp_path: Path):
    arguments = ("reproduce", "gandiva", "--only", "turns-cost", "-j", "1")
    first = sanjaya(tmp_path, *arguments)
    assert first.returncode == 0, first.stderr
    kept = json.loads((tmp_path / "reproduced" / "gandiva.measured.json").read_text())
    whole = kept["claims"]["turns-cost"]
    kept["claims"]["turns-cost"] = {role: values for role, values in whole.items() if role != "tested"}
    (tmp_path / "part.json").write_text(json.dumps(kept))
    done = sanjaya(tmp_path, *arguments, "--known", "part.json", "--out", "other")
    assert (done.returncode, done.stdout) == (0, first.stdout)
    assert "1 run, 0 were there, 0 failed; in other" in done.stderr
    assert json.loads((tmp_path / "other" / "gandiva.measured.json").read_text())["claims"]["turns-cost"] == whole
    left_out = "leave out 2 runs of an earlier study"
    assert left_out in (tmp_path / "other" / "report.html").read_text()
    assert left_out not in (tmp_path / "reproduced" / "report.html").read_text()


def test_the_table_says_why_a_claim_is_not_measured(tmp_path: Path):
    done = sanjaya(tmp_path, "reproduce", "gandiva", "--judge")
    assert done.returncode == 0, done.stderr
    head, *rows = (line.split("\t") for line in done.stdout.splitlines())
    assert head[-2:] == ["VERDICT", "WHY"]
    assert {row[-2]: bool(row[-1]) for row in rows if row[-2] != "holds"} == {"not measured": True}


def test_claims_of_all_papers_make_one_report(tmp_path: Path):
    done = sanjaya(tmp_path, "reproduce", "all", "--only", "turns-cost", "--only", "las-example", "-j", "1")
    assert done.returncode == 0, done.stderr
    head, *rows = done.stdout.splitlines()
    assert head.split("\t")[0] == "CLAIM"
    assert {row.split("\t")[0]: row.split("\t")[5] for row in rows} == {"las-example": "holds", "turns-cost": "holds"}
    page = (tmp_path / "reproduced" / "report.html").read_text()
    assert "2 claims. 2 are measured: 2 of these hold, 0 differ." in page
    kept = json.loads((tmp_path / "reproduced" / "gandiva.measured.json").read_text())
    assert kept["format"] == "measured/1" and set(kept["claims"]) == {"turns-cost"}
    again = sanjaya(tmp_path, "reproduce", "all", "--only", "turns-cost", "--only", "las-example")
    assert "0 run, 3 were there" in again.stderr and again.stdout == done.stdout


def test_people_read_notes_below_the_table_and_programs_in_its_last_column(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    row = Row(
        claim_id="a",
        number="A-1",
        where="figure 1",
        statement="It is so.",
        paper="2",
        measured="1",
        accepted="2",
        verdict=Verdict.DIFFERS,
        note="Known: [why].",
    )
    tell([row])
    assert capsys.readouterr().out.splitlines()[1] == "a\tfigure 1\t2\t1\t2\tdiffers\tKnown: [why]."
    monkeypatch.setattr(reproducing, "is_terminal", lambda: True)
    tell([row])
    assert "WHY" not in (shown := capsys.readouterr().out)
    assert shown.splitlines()[-1] == "a (differs): Known: [why]."
