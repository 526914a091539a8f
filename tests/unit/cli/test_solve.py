"""`sanjaya solve`: problems are read strictly, and what is wrong is named by its place."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from libs.cli.problems import parse_problem, refused
from libs.contracts.bad_input import BadInput
from services.placement.core.policies.allocation.problem import InvalidProblem
from services.placement.core.policies.allocation.solve import solve

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
    ("cluster.v100.gpus", "many", "$.cluster"),
    ("cluster.v100.shares_gpus_with", "tpu", "$.cluster.v100.shares_gpus_with"),
    ("jobs.0.throughputs", {"tpu": 1.0}, "$.jobs[0].throughputs.tpu"),
    ("jobs.0.throughputs.v100", -1.0, "$.jobs[0].throughputs.v100"),
    ("jobs.0.throughputs.v100", "fast", "$.jobs[0].throughputs"),
    ("jobs.0.scale_factor", 0, "$.jobs[0].scale_factor"),
    ("jobs.0.weight", 0, "$.jobs[0].weight"),
    ("jobs.0.steps_remaining", -5, "$.jobs[0].steps_remaining"),
    ("jobs.0.slo_s", 0, "$.jobs[0].slo_s"),
    ("jobs.1.id", "a", "$.jobs[1].id"),
    ("jobs.1.entity", "sales", "$.jobs[1].entity"),
    ("jobs", "none", "$.jobs"),
    ("pairs.0.jobs", ["a", "c"], "$.pairs[0].jobs[1]"),
    ("pairs.0.jobs", ["a", "a"], "$.pairs[0].jobs"),
    ("pairs.0.throughputs", {"v100": [1.0]}, "$.pairs[0].throughputs"),
    ("pairs.0.throughputs", {"v100": [1.0, -1.0]}, "$.pairs[0].throughputs.v100[1]"),
    ("entities.research.policy", "magic", "$.entities.research.policy"),
    ("entities.research.weight", -1, "$.entities.research.weight"),
    ("entities", {"x": {"parent": "y"}, "y": {"parent": "x"}}, "$.entities.x.parent: a cycle"),
    ("entities", {"x": {"parent": "z"}}, "$.entities.x.parent"),
    ("entities", {"research": {"parent": "y"}, "y": {}}, "two levels"),
]


@pytest.mark.parametrize(("path", "value", "place"), BROKEN)
def test_what_is_wrong_is_named_by_its_place(path: str, value: Any, place: str):
    with pytest.raises(BadInput) as error:
        try:
            solve(parse_problem(changed(path, value), "problem.json", silent))
        except InvalidProblem as invalid:
            raise refused(invalid, "problem.json") from None
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


def test_the_command_answers_on_standard_output():
    done = subprocess.run([SANJAYA, "solve", "-"], input=json.dumps(document()), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["format"] == "policy-solution/1" and answer["status"] == "optimal"
    assert answer["infeasible"] == [] and answer["solve_s"] > 0
    assert {job for share in answer["allocation"] for job in share["jobs"]} == {"a", "b"}


@pytest.mark.parametrize("text", ["", "{", '{"format": "policy-problem/1", "weight": NaN}', "[]"])
def test_the_command_ends_with_2_on_bad_input(text: str):
    done = subprocess.run([SANJAYA, "solve", "-"], input=text, capture_output=True, text=True)
    assert done.returncode == 2 and "standard input" in done.stderr and "Traceback" not in done.stderr
