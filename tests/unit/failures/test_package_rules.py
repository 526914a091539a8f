"""The rules that come with the product: each decides its own example, whatever other rules there are."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from libs.failures.checking import problems
from libs.failures.classifier import Classifier
from libs.failures.package import package_files, package_rules
from libs.failures.verdict import Ended

LABELLED = Path(__file__).parents[4] / "shared" / "data" / "failures"


def test_each_rule_decides_its_example_and_leaves_its_counter_example_alone():
    assert [str(problem) for problem in problems(package_files(), package_rules())] == []


def test_there_are_enough_rules_and_causes():
    read = package_files()
    assert len(read.rules) >= 230
    assert len(read.causes) >= 60


@pytest.mark.parametrize(("name", "least"), [("failures.jsonl", 62), ("failures-modern.jsonl", 51)])
def test_labelled_logs_have_the_reasons_of_their_labels(name: str, least: int):
    path = LABELLED / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    right: Counter[bool] = Counter()
    for line in path.read_text().splitlines():
        labelled = json.loads(line)
        classifier = Classifier(package_rules())
        classifier.feed(labelled["log"])
        ended = Ended(exit_code=labelled.get("exit_code"), signal=labelled.get("signal"))
        verdict = classifier.verdict(ended)
        right[verdict is not None and verdict.reason == labelled["reason"]] += 1
    assert right[True] >= least


def test_a_healthy_end_has_no_verdict():
    classifier = Classifier(package_rules())
    classifier.feed("epoch 1 loss 0.5\nepoch 2 loss 0.4\n")
    assert classifier.verdict(Ended(exit_code=0)) is None
