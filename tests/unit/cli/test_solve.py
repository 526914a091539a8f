"""`sanjaya solve`: problems are read strictly, and what is wrong is named by its place."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from libs.cli.planning import solve as run_solve
from libs.cli.problems import parse_problem, read_problem
from libs.contracts.bad_input import BadInput
from libs.policies.allocation.table import ALLOCATION_POLICIES

SANJAYA = str(Path(sys.executable).with_name("sanjaya"))


def document(**changes: Any) -> dict[str, Any]:
    return {
        "format": "policy-problem/1",
        "policy": "max_min_fairness",
        "options": {"space_sharing": True},
        "cluster": {"v100": {"gpus": 1, "cost_per_hour": 2.48}, "k80": {"gpus": 1}},
        "jobs": [
            {"id": "a", "throughputs": {"v100": 4.0, "k80": 1.0}, "steps_remaining": 1000, "slo_s": None},
            {"id": "b", "throughputs": {"v100": 3, "k80": 2}, "entity": "research"},
        ],
        "pairs": [{"jobs": ["a", "b"], "throughputs": {"v100": [2.0, 1.5]}}],
        "entities": {"research": {"weight": 1.0, "policy": "fairness"}},
        **changes,
    }


def changed(path: str, value: Any) -> dict[str, Any]:
    found: Any = document()
    top = found
    *steps, last = path.split(".")
    for step in steps:
        found = found[int(step) if step.isdigit() else step]
    found[int(last) if last.isdigit() else last] = value
    return top


def silent(sentence: str) -> None:
    raise AssertionError(sentence)


BROKEN = [
    ("format", "policy-problem/2", "$.format"),
    ("policy", "magic", "$.policy"),
    ("cluster.v100.gpus", -1, "$.cluster.v100.gpus"),
    ("cluster.v100.gpus", 0, "$.cluster.v100.gpus: 0"),
    ("cluster.v100.gpus", "many", "$.cluster.v100.gpus: 'many'"),
    ("cluster.v100.gpus", 1.5, "$.cluster.v100.gpus: 1.5"),
    ("cluster.v100.gpus", True, "$.cluster.v100.gpus: True"),
    ("cluster.v100.gpus", None, "$.cluster.v100.gpus: nothing"),
    ("cluster.v100.gpus", 10**30, "$.cluster.v100.gpus: 1000"),
    ("cluster.v100.cost_per_hour", -1, "$.cluster.v100.cost_per_hour: -1"),
    ("cluster.v100", 4, "$.cluster.v100: 4; expected an object"),
    ("cluster", {}, "$.cluster: {}; expected at least one GPU type"),
    ("cluster", [], "$.cluster: []; expected an object"),
    ("cluster", None, "$.cluster: nothing; expected an object"),
    ("options", [], "$.options: []; expected an object"),
    ("options.space_sharing", 1, "$.options.space_sharing: 1; expected true or false"),
    ("policy", None, "$.policy: nothing"),
    ("policy", "min_makespan", "$.jobs[1].steps_remaining: nothing; expected steps"),
    ("policy", "min_cost", "$.cluster.k80.cost_per_hour: nothing; expected dollars"),
    ("cluster.v100.shares_gpus_with", "tpu", "$.cluster.v100.shares_gpus_with"),
    ("jobs.0.throughputs", {"tpu": 1.0}, "$.jobs[0].throughputs.tpu"),
    ("jobs.0.throughputs.v100", -1.0, "$.jobs[0].throughputs.v100"),
    ("jobs.0.throughputs.v100", "fast", "$.jobs[0].throughputs.v100: 'fast'"),
    ("jobs.0.throughputs.v100", float("nan"), "$.jobs[0].throughputs.v100: nan"),
    ("jobs.0.throughputs.v100", 10**400, "$.jobs[0].throughputs.v100: 1000"),
    ("jobs.0.throughputs.v100", None, "$.jobs[0].throughputs.v100: nothing"),
    ("jobs.0.throughputs", None, "$.jobs[0].throughputs: nothing"),
    ("jobs.0.scale_factor", 0, "$.jobs[0].scale_factor: 0; expected a whole number from 1 on"),
    ("jobs.0.scale_factor", 2, "$.pairs[0].jobs: scale factors 2 and 1"),
    ("jobs.0.weight", 0, "$.jobs[0].weight: 0; expected a number above 0"),
    ("jobs.0.weight", -1, "$.jobs[0].weight"),
    ("jobs.0.weight", "2", "$.jobs[0].weight: '2'"),
    ("jobs.0.elapsed_s", -1, "$.jobs[0].elapsed_s"),
    ("jobs.0.entity", 7, "$.jobs[0].entity: 7; expected a text"),
    ("jobs.0.id", 7, "$.jobs[0].id: 7; expected a text"),
    ("jobs.0.id", "", "$.jobs[0].id: ''"),
    ("jobs.0.id", "\ud800", "$.jobs[0].id: '\\ud800'"),
    ("jobs.0", "a", "$.jobs[0]: 'a'; expected an object"),
    ("jobs.0.steps_remaining", -5, "$.jobs[0].steps_remaining"),
    ("jobs.0.slo_s", 0, "$.jobs[0].slo_s"),
    ("jobs.1.id", "a", "$.jobs[1].id"),
    ("jobs.1.entity", "sales", "$.jobs[1].entity"),
    ("jobs", "none", "$.jobs"),
    ("pairs.0.jobs", ["a", "c"], "$.pairs[0].jobs[1]"),
    ("pairs.0.jobs", ["a", "a"], "$.pairs[0].jobs"),
    ("pairs.0.jobs", ["a"], "$.pairs[0].jobs: ['a']; expected the ids of two jobs"),
    ("pairs.0.jobs", "ab", "$.pairs[0].jobs: 'ab'; expected an array"),
    ("pairs.0.jobs", [["a"], "b"], "$.pairs[0].jobs[0]: ['a']; expected a text"),
    ("pairs", [document()["pairs"][0], {"jobs": ["b", "a"], "throughputs": {}}], "$.pairs[1].jobs: b and a"),
    ("pairs.0.throughputs", {"v100": [1.0]}, "$.pairs[0].throughputs.v100: [1.0]; expected steps per second of"),
    ("pairs.0.throughputs", {"v100": [1.0, "x"]}, "$.pairs[0].throughputs.v100[1]: 'x'"),
    ("pairs.0.throughputs", {"tpu": [1.0, 1.0]}, "$.pairs[0].throughputs.tpu"),
    ("pairs.0.throughputs", {"v100": [1.0, -1.0]}, "$.pairs[0].throughputs.v100[1]"),
    ("entities.research.policy", "magic", "$.entities.research.policy"),
    ("entities.research.weight", -1, "$.entities.research.weight"),
    ("entities", {"x": {"parent": "y"}, "y": {"parent": "x"}}, "$.entities.x.parent: a cycle"),
    ("entities", {"x": {"parent": "x"}}, "$.entities.x.parent: a cycle (x -> x)"),
    ("entities", {"x": {"parent": "y"}, "y": {"parent": "z"}, "z": {"parent": "y"}}, "a cycle (x -> y -> z -> y)"),
    ("entities", {"x": {"parent": "z"}}, "$.entities.x.parent: 'z'; expected one of x"),
    ("entities", {"x": {"parent": ["x"]}}, "$.entities.x.parent: ['x']; expected a text"),
    ("entities", {"x": 7}, "$.entities.x: 7; expected an object"),
    ("entities", {"research": {"parent": "y"}, "y": {}}, "two levels"),
]


@pytest.mark.parametrize(("path", "value", "place"), BROKEN)
def test_what_is_wrong_is_named_by_its_place(path: str, value: Any, place: str):
    with pytest.raises(BadInput) as error:
        parse_problem(changed(path, value), "problem.json", silent)
    assert place in str(error.value) and str(error.value).startswith("problem.json: $")


def test_unknown_fields_are_ignored_with_a_warning():
    said: list[str] = []
    problem = changed("jobs.0.colour", "red")
    problem["entities"]["research"]["colour"] = problem["colour"] = "blue"
    parse_problem(problem, "p", said.append)
    assert [line.split(" is ")[0] for line in said] == [
        "p: $.colour",
        "p: $.jobs[0].colour",
        "p: $.entities.research.colour",
    ]


def test_the_same_unknown_field_in_many_jobs_is_said_once():
    said: list[str] = []
    jobs = [{"id": str(number), "throughputs": {"v100": 1.0}, "colour": "red"} for number in range(1000)]
    parse_problem(document(jobs=jobs, pairs=[]), "p", said.append)
    assert said == ["p: $.jobs[0].colour (and 999 more) is not part of policy-problem/1 and is ignored"]


def test_what_may_be_left_out_may_be_null():
    jobs = [{"id": "a", "throughputs": {"v100": 1.0}}]
    problem = parse_problem(document(jobs=jobs, options=None, pairs=None, entities=None), "p", silent)
    (job,) = problem.jobs
    assert (job.scale_factor, job.weight, job.steps_remaining, job.slo_s) == (1, 1.0, None, None)
    assert problem.options.heterogeneity_aware and not problem.options.space_sharing
    assert problem.pairs == [] and problem.entities == {}


def test_a_deadline_needs_the_steps_to_be_done_by_then():
    parse_problem(changed("jobs.1.slo_s", 60.0), "p", silent)
    jobs = [{"id": "a", "throughputs": {"v100": 1.0}, "slo_s": 60.0}]
    with pytest.raises(BadInput, match=r"\$\.jobs\[0\]\.steps_remaining: nothing"):
        parse_problem(document(policy="max_throughput_slo", jobs=jobs, pairs=[]), "p", silent)


@pytest.mark.parametrize("policy", ALLOCATION_POLICIES)
def test_every_policy_answers(policy: str, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    problem = changed("jobs.1.steps_remaining", 500)
    problem["policy"], problem["cluster"]["k80"]["cost_per_hour"] = policy, 0.45
    (tmp_path / "problem.json").write_text(json.dumps(problem))
    run_solve(str(tmp_path / "problem.json"), str(tmp_path / "solution.json"))
    answer = json.loads((tmp_path / "solution.json").read_text())
    assert list(answer) == ["format", "status", "objective", "allocation", "solve_s", "infeasible"]
    assert answer["format"] == "policy-solution/1" and answer["allocation"]
    assert capsys.readouterr() == ("", "")


def test_an_answer_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "problem.json").write_text(json.dumps(document()))
    for out in (tmp_path / "none" / "out.json", tmp_path):
        with pytest.raises(BadInput, match="expected a file that can be written"):
            run_solve(str(tmp_path / "problem.json"), str(out))


def test_the_command_answers_on_standard_output():
    done = subprocess.run([SANJAYA, "solve", "-"], input=json.dumps(document()), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["format"] == "policy-solution/1" and answer["status"] == "optimal"
    assert answer["infeasible"] == [] and answer["solve_s"] > 0
    assert {job for share in answer["allocation"] for job in share["jobs"]} == {"a", "b"}


GOOD = json.dumps(document())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "an empty file"),
        (" \n", "an empty file"),
        ("[]", "$: []; expected an object"),
        ("null", "$: nothing; expected an object"),
        ("{}", "$.format: nothing; expected 'policy-problem/1'"),
        (GOOD[: len(GOOD) - 3], ":1: no JSON: it ends too early"),
        (GOOD[:100], ":1: no JSON: Unterminated string starting, column 98"),
        (GOOD + "x", ":1: no JSON: Extra data"),
        ("{\n'a': 1}", ":2: no JSON: "),
        (GOOD.replace("4.0", "NaN"), "$.jobs[0].throughputs.v100: NaN, which is no JSON"),
        (GOOD.replace("4.0", "Infinity"), "$.jobs[0].throughputs.v100: Infinity"),
        (GOOD.replace("4.0", "-Infinity"), "$.jobs[0].throughputs.v100: -Infinity"),
        (GOOD.replace("4.0", "1e999"), "$.jobs[0].throughputs.v100: inf; expected steps per second"),
        (GOOD.replace("4.0", "1" * 5000), "no JSON: "),
        (GOOD.replace('"k80": {', '"v100": {'), "no JSON: an object has the field 'v100' twice"),
        ("[" * 100_000, "no JSON: nested too deeply"),
        (GOOD.encode() + b"\xff", "is not UTF-8"),
    ],
    ids=lambda value: str(value)[-40:],
)
def test_a_file_that_is_no_problem(tmp_path: Path, text: str | bytes, said: str):
    path = tmp_path / "problem.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BadInput) as error:
        read_problem(path, silent)
    assert str(error.value).startswith(str(path)) and said in str(error.value)


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path):
    (tmp_path / "problem.json").write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert len(read_problem(tmp_path / "problem.json", silent).jobs) == 2


@pytest.mark.parametrize("text", [b"", b'{"format": "policy-problem/1", "weight": NaN}', b"[]", b"\xff"])
def test_the_command_ends_with_2_on_bad_input(text: bytes):
    done = subprocess.run([SANJAYA, "solve", "-"], input=text, capture_output=True)
    said = done.stderr.decode()
    assert done.returncode == 2 and said.startswith("error: standard input") and len(said.splitlines()) == 1
    assert done.stdout == b""
