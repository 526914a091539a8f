"""Curves of the page lie in their frames, whatever was measured."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

MODULE = Path(__file__).parents[3] / "services" / "gateway" / "web" / "drawing.js"

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed here")


def placed(lines: str, level: str = "null", marks: str = "[]") -> Any:
    """What the page's function says of arguments in JavaScript."""
    code = f"""
import {{ placed }} from {json.dumps(MODULE.as_uri())};
console.log(JSON.stringify(placed({lines}, {level}, {marks})));
"""
    command = ["node", "--no-warnings", "--input-type=module", "--eval", code]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)


def check_inside(found: Any) -> None:
    for line in found["lines"]:
        for part in line["parts"]:
            assert all(4 <= x <= 296 and 4 <= y <= 116 for x, y in part), part
    assert all(4 <= mark <= 296 for mark in found["marks"])


@pytest.mark.parametrize(
    "points",
    [
        "[[0, 1], [5, 3], [9, -2]]",
        "[[0, 1e300], [1, -1e300], [2, 1.7e308], [3, -1.7e308]]",
        "[[5, 5]]",
        "[[9, 1], [0, 2]]",
    ],
)
def test_every_point_is_inside(points: str):
    found = placed(f"[{{ points: {points} }}]", "0.5", "[-7, 3, 99]")
    check_inside(found)
    assert len(found["lines"][0]["parts"]) == 1 and 4 <= found["level"] <= 116


@pytest.mark.parametrize("hole", ["null", "undefined", "NaN", "Infinity"])
def test_what_was_not_measured_is_a_gap_and_no_fall_to_zero(hole: str):
    found = placed(f"[{{ points: [[0, 7], [1, 8], [2, {hole}], [3, 9]] }}]")
    check_inside(found)
    assert [len(part) for part in found["lines"][0]["parts"]] == [2, 1]
    assert (found["low"], found["high"]) == (7, 9)


def test_what_does_not_change_lies_in_the_middle():
    assert {y for _, y in placed("[{ points: [[0, 3], [1, 3]] }]")["lines"][0]["parts"][0]} == {60}


@pytest.mark.parametrize("points", ["[]", "[[0, NaN]]"])
def test_nothing_measured_is_no_drawing(points: str):
    assert placed(f"[{{ points: {points} }}]") is None
