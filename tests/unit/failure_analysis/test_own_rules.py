"""The folder of operators' rules: read when it changes, refused as a whole where one file is bad."""

import json
import os
from pathlib import Path

import pytest

from libs.failures.package import package_rules
from services.failure_analysis.adapters.own_rules import Loaded, OwnRules

OWN = {
    "id": "licence_server",
    "reason": "incorrect_inputs",
    "cause": "licences",
    "category": "infrastructure",
    "rank": 20,
    "pattern": "licence server .* does not answer",
    "example": "licence server lic1 does not answer",
    "counter_example": "licence server lic1 answers",
}
CAUSES = "causes:\n  licences: {meaning: No licence is to be had., retry: true}\n"


def written(folder: Path, **changes: object) -> None:
    (folder / "mine.yaml").write_text(f"{CAUSES}rules:\n  - {json.dumps({**OWN, **changes})}\n")


def load(rules: OwnRules) -> Loaded:
    loaded = rules.load()
    assert loaded is not None
    return loaded


def test_without_a_folder_the_packages_rules_are_in_force_and_read_once():
    rules = OwnRules(None)
    assert load(rules) == Loaded(package_rules())
    assert rules.load() is None


def test_own_rules_and_an_own_table_are_read_again_when_they_change(tmp_path: Path):
    rules = OwnRules(tmp_path)
    assert load(rules).rules is package_rules()
    written(tmp_path)
    (tmp_path / "consequences.yaml").write_text("elsewhere: [licences]\n")
    mine = load(rules)
    assert "licence_server" in [rule.id for rule in mine.rules.rules]
    assert (mine.consequences, mine.refused) == ({"licences": "elsewhere"}, "")
    assert rules.load() is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pattern": "(?=x)y"}, "mine.yaml:4: rule licence_server: pattern"),
        ({"example": "something else"}, "no rule matches it"),
        ({"cause": "unheard_of"}, "unknown cause 'unheard_of'"),
    ],
)
def test_bad_rules_leave_those_before_in_force(tmp_path: Path, changes: dict[str, object], said: str):
    written(tmp_path)
    rules = OwnRules(tmp_path)
    good = load(rules)
    written(tmp_path, **changes)
    os.utime(tmp_path / "mine.yaml", (1, 1))
    bad = load(rules)
    assert said in bad.refused and bad.rules is good.rules


def test_a_folder_that_is_not_there_is_said(tmp_path: Path):
    loaded = load(OwnRules(tmp_path / "none"))
    assert "no such folder" in loaded.refused and loaded.rules is package_rules()


def test_a_bad_table_is_refused(tmp_path: Path):
    (tmp_path / "consequences.yaml").write_text("never: [typo]\n")
    assert "unknown cause 'typo'" in load(OwnRules(tmp_path)).refused
