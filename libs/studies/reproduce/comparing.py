"""How the values of a claim's arms become one number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, stdev
from typing import NamedTuple


class Value(NamedTuple):
    """A metric of one run."""

    at: float
    """The load, the number of jobs or the place that the run belongs to; 0 where there is one only."""
    seed: int
    value: float | None
    """None: the run has none, for instance because no job has ended."""


Arms = Mapping[str, Sequence[Value]]
"""{role: its values}"""
Compare = Callable[[Sequence[Value], Sequence[Value], float | None], float | None]


def mean_of(values: Sequence[Value]) -> float | None:
    """Over seeds and places; None when some run has no value."""
    known = [each.value for each in values if each.value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _over(base: Sequence[Value], tested: Sequence[Value], limit: float | None) -> float | None:
    above, below = mean_of(base), mean_of(tested)
    return None if above is None or not below else above / below


def _relative(base: Sequence[Value], tested: Sequence[Value], limit: float | None) -> float | None:
    return _over(tested, base, limit)


def _change(base: Sequence[Value], tested: Sequence[Value], limit: float | None) -> float | None:
    ratio = _relative(base, tested, limit)
    return None if ratio is None else ratio - 1.0


def _saved(base: Sequence[Value], tested: Sequence[Value], limit: float | None) -> float | None:
    change = _change(base, tested, limit)
    return None if change is None else -change


def _value(base: Sequence[Value], tested: Sequence[Value], limit: float | None) -> float | None:
    return mean_of(tested)


def _sustained(base: Sequence[Value], tested: Sequence[Value], limit: float | None) -> float | None:
    if limit is None:
        raise ValueError("`sustained` needs a limit")
    higher, lower = reached_at(tested, limit), reached_at(base, limit)
    return None if higher is None or not lower else higher / lower


COMPARISONS: dict[str, Compare] = {
    "over": _over,
    "relative": _relative,
    "change": _change,
    "saved": _saved,
    "value": _value,
    "sustained": _sustained,
}
"""`over`: base / tested; `relative`: tested / base; `change`: that less 1; `saved`: 1 less that; `value`: tested alone;
`sustained`: the place at which tested reaches the limit, over the place at which base does."""


def reached_at(values: Sequence[Value], limit: float) -> float | None:
    """Where the mean over seeds rises through the limit, by straight lines; None: not between the places looked at."""
    per_place: dict[float, list[Value]] = {}
    for each in values:
        per_place.setdefault(each.at, []).append(each)
    means = [(at, mean) for at in sorted(per_place) if (mean := mean_of(per_place[at])) is not None]
    for (at, value), (next_at, next_value) in pairwise(means):
        if value < limit <= next_value:
            return at + (next_at - at) * (limit - value) / (next_value - value)
    return None


def deviation(arms: Arms, compare: str, limit: float | None) -> float | None:
    """The standard deviation over seeds of the value that each seed alone would give; None for fewer than two."""
    seeds = sorted({each.seed for each in arms["tested"]})
    found = []
    for seed in seeds:
        base, tested = ([each for each in arms.get(role, ()) if each.seed == seed] for role in ("base", "tested"))
        value = COMPARISONS[compare](base, tested, limit)
        if value is not None:
            found.append(value)
    return stdev(found) if len(found) > 1 else None


def exchanged(arms: Arms) -> Arms:
    """The arms with the tested policy's place taken by its baseline, and the other way round."""
    if "instead" in arms:
        return {**arms, "tested": arms["instead"], "instead": arms.get("tested", ())}
    return {**arms, "tested": arms.get("base", ()), "base": arms.get("tested", ())}
