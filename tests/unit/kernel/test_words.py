"""Nouns and verbs agree with their number."""

from __future__ import annotations

import pytest

from libs.kernel.words import counted, either, moment, plural, ranges, some


def test_only_one_is_singular():
    assert [counted(number, "GPU") for number in (0, 1, 2)] == ["0 GPUs", "1 GPU", "2 GPUs"]


def test_a_plural_of_its_own_and_the_verb_are_given():
    assert [counted(number, "retry is", "retries are") for number in (1, 3)] == ["1 retry is", "3 retries are"]
    assert [plural(number, "is", "are") for number in (0, 1)] == ["are", "is"]


def test_of_several_numbers_the_last_one_counts():
    assert [either(numbers, "GPU") for numbers in ([1], [1, 2, 4])] == ["1 GPU", "1 or 2 or 4 GPUs"]


@pytest.mark.parametrize(
    ("indices", "shown_as"),
    [([0], "0"), ([0, 1, 2, 3], "0-3"), ([0, 2, 3, 7], "0,2-3,7"), ([2, 0, 1], "2,0-1"), ([], "")],
)
def test_indices_that_follow_on_each_other_are_a_range(indices: list[int], shown_as: str):
    assert ranges(indices) == shown_as


def test_some_of_many_names():
    assert (some(["ada"]), some(["a", "b", "c"]), some(["a", "b", "c", "d", "e"])) == (
        "ada",
        "a, b, c",
        "a, b, c and 2 more",
    )


def test_a_moment():
    assert moment(1_700_000_000.9) == "2023-11-14 22:13:20 UTC"
