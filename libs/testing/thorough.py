"""How much slow tests do: by default what proves a thing once, with SANJAYA_THOROUGH in the environment all of it.

The one place that reads the variable. Scripts of jobs import it as well, so it imports nothing that is slow to import.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")

THOROUGH = "SANJAYA_THOROUGH" in os.environ


def cases(*by_default: T, thorough: tuple[T, ...]) -> list[Any]:
    """The values of a test's one parameter: the first ones always, the others only on request, marked `thorough`."""
    return [*by_default, *rows(thorough=tuple((case,) for case in thorough))]


def rows(*by_default: tuple[Any, ...], thorough: tuple[tuple[Any, ...], ...]) -> list[Any]:
    """As `cases`, for a test of several parameters: each row has a value for each of them."""
    import pytest  # not for scripts of jobs, see above

    return [*by_default, *(pytest.param(*row, marks=pytest.mark.thorough) for row in thorough if THOROUGH)]


def often(by_default: int, thorough: int) -> int:
    """How often a test that is marked `thorough` does something."""
    return thorough if THOROUGH else by_default


def sample(cases: Sequence[T], by_default: int) -> Sequence[T]:
    """Cases of a loop in a test that is marked `thorough`: all of them on request, else so many.

    Returns:
        The same ones in every run, evenly spread, the first and the last among them.
    """
    if THOROUGH or len(cases) <= by_default:
        return cases
    return [cases[round(number * (len(cases) - 1) / (by_default - 1))] for number in range(by_default)]
