"""Claims that are not measured name what they wait for, or what measures it instead: and that is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from libs.cli.main import GROUPS
from libs.studies.reproduce.stated import Stated, table_of

ROOT = Path(__file__).parents[3]
WAITING = [
    stated for paper in ("gavel", "gandiva", "antman", "philly") for stated in table_of(paper).claim if stated.waits
]
NAMED = re.compile(r"`([^`]+)`")


def is_there(named: str) -> bool:
    """Whether a module to be run, a command, or a file or folder is there."""
    if named.startswith("python -m "):
        module = ROOT / named.split()[2].replace(".", "/")
        return module.with_suffix(".py").is_file() or (module / "__main__.py").is_file()
    if named.startswith("sanjaya "):
        return any(named.split()[1] in commands.split() for commands in GROUPS.values())
    return (ROOT / named).exists()


@pytest.mark.parametrize("stated", WAITING, ids=lambda stated: f"{stated.row}-{stated.id}")
def test_what_is_named_in_the_place_of_a_measurement_is_there(stated: Stated):
    assert [named for named in NAMED.findall(stated.waits) if not is_there(named)] == []
    assert stated.accepted is None


def test_a_module_or_a_file_that_is_missing_is_noticed():
    assert not is_there("python -m tests.bench.nothing")
    assert not is_there("tests/unit/nothing/")
    assert not is_there("sanjaya nothing")
    assert is_there("python -m tests.gpu")
