"""A table or a figure of the study as data: rows that can be compared, printed and drawn."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from libs.studies.philly.observed import Needs, Observed


class Unit(StrEnum):
    """Of a value."""

    COUNT = "count"
    RATIO = "ratio"
    MINUTES = "min"
    MEAN = "mean"


@dataclass(frozen=True)
class Entry:
    """One number."""

    row: str
    column: str
    value: float
    unit: Unit


@dataclass(frozen=True)
class Panel:
    """Distributions that are drawn together, or bars where each has one value."""

    title: str
    curves: Mapping[str, Sequence[float]]
    unit: str
    logarithmic: bool = False


@dataclass(frozen=True)
class Finding:
    """A table or a figure of the study, for the data at hand."""

    where: str
    """`Table 1`, `Figure 3`: its place in the study."""
    title: str
    entries: tuple[Entry, ...] = ()
    panels: tuple[Panel, ...] = ()
    bars: tuple[str, ...] = ()
    """Columns that are drawn as bars, side by side for each row; none: the panels are drawn."""
    missing: str = ""
    """What the data lack; where there are entries, for the rest of it."""

    def value(self, row: str, column: str) -> float | None:
        """One number; None where there is none."""
        return next((each.value for each in self.entries if (each.row, each.column) == (row, column)), None)


def without(where: str, title: str, observed: Observed, *needs: Needs) -> Finding:
    """A table or figure that cannot be made of these data, and what is missing."""
    return Finding(where, title, missing=lacking(observed, *needs))


def lacking(observed: Observed, *needs: Needs) -> str:
    """What is missing of these, and what would have it."""
    known = [need for need in needs if need in observed.lacks] or needs
    return "; ".join(f"{need.value} ({observed.lacks.get(need, 'nothing of it was recorded')})" for need in known)


SIZES = ("1 GPU", "2-4 GPUs", ">4 GPUs")
"""The study's classes of size."""


def size_of(gpus: int) -> str:
    """The class of a job's size."""
    return SIZES[0] if gpus <= 1 else SIZES[1] if gpus <= 4 else SIZES[2]


def quantile(values: Sequence[float], ratio: float) -> float:
    """The smallest value that so large a part of the values does not exceed."""
    ascending = sorted(values)
    return ascending[max(0, math.ceil(ratio * len(ascending)) - 1)]


def part(holds: Iterable[bool]) -> float:
    """The part of those that hold; 0 of none."""
    found = list(holds)
    return sum(found) / len(found) if found else 0.0
