"""How much a run does, and which tests share a process."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.testing import scheduling, thorough
from libs.testing.effort import searching
from libs.testing.thorough import cases, often, rows, sample

TESTS = Path(__file__).parents[2]
BROKER = "libs.testing.kafka"


@pytest.fixture(params=[False, True], ids=["by default", "thorough"])
def is_thorough(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(thorough, "THOROUGH", request.param)
    return bool(request.param)


def test_a_sample_is_spread_evenly_from_the_first_to_the_last(is_thorough: bool):
    assert list(sample(range(101), by_default=5)) == (list(range(101)) if is_thorough else [0, 25, 50, 75, 100])
    assert list(sample("abc", by_default=5)) == ["a", "b", "c"]


def test_further_cases_are_marked(is_thorough: bool):
    first, *further = cases("a", thorough=("b", "c"))
    assert first == "a"
    assert [case.values for case in further] == ([("b",), ("c",)] if is_thorough else [])
    both, *more = rows(("a", 1), thorough=(("b", 2),))
    assert (both, [row.values for row in more]) == (("a", 1), [("b", 2)] if is_thorough else [])
    assert all(mark.name == "thorough" for case in further for mark in case.marks)
    assert often(2, thorough=9) == (9 if is_thorough else 2)


@given(st.integers())
def test_a_search_that_chooses_nothing_is_marked_and_takes_its_time(number: int):
    assert settings.default is not None
    assert settings.default.deadline is None


def test_random_searches_are_marked(request: pytest.FixtureRequest):
    marked = [item.name for item in request.session.items if item.path == Path(__file__) and marks(item)]
    assert marked == ["test_a_search_that_chooses_nothing_is_marked_and_takes_its_time"]


def marks(item: pytest.Item) -> bool:
    return item.get_closest_marker("thorough") is not None


@pytest.mark.skipif(thorough.THOROUGH, reason="is about the other effort")
def test_searches_try_the_same_examples_in_every_run():
    assert (searching(7, thorough=70).max_examples, searching(7, thorough=70).derandomize) == (7, True)


def test_files_that_share_a_broker_share_a_process_and_come_first():
    shared = [file for file in TESTS.rglob("test_*.py") if scheduling.group_of(file) == BROKER]
    assert TESTS / "contracts" / "test_bus_kafka.py" in shared
    assert TESTS / "integration" / "test_introspection_kafka.py" in shared
    assert scheduling.group_of(TESTS / "e2e" / "test_demo.py") == str(TESTS / "e2e" / "test_demo.py")
    files = ["contracts/test_bus_kafka.py", "e2e/test_demo.py", "integration/test_cli.py", "unit/test_thorough.py"]
    assert [scheduling.rank(TESTS / file)[0] for file in files] == [0, 1, 1, 2]


def test_the_longest_files_come_before_others_that_start_processes():
    longest = [TESTS / name for name in scheduling.LONGEST]
    others = [file for file in (TESTS / "integration").glob("test_*.py") if file not in longest]
    assert all(file.exists() for file in longest)
    alone = [file for file in others if scheduling.group_of(file) != BROKER]
    assert max(map(scheduling.rank, longest)) < min(map(scheduling.rank, alone))
