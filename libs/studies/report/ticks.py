"""Axes: units of time, percentages, plain numbers on logarithmic axes."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, PercentFormatter

LOGARITHMIC_FROM = 15.0
"""From this ratio of the greatest to the smallest value on, an axis is logarithmic."""
_UNITS = (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0))


def time_unit(span_s: float) -> tuple[str, float]:
    """The unit in which a span has a handy length, and its seconds."""
    for name, seconds in _UNITS:
        if span_s > 2 * seconds:
            return name, seconds
    return "seconds", 1.0


def percent_ticks() -> PercentFormatter:
    """0.5 is 50 %."""
    return PercentFormatter(xmax=1.0, decimals=0)


def logarithmic(axis: Axis) -> None:
    """Ticks at 1, 2, 5, 10 and so on, written plainly."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def scale_for(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic vertical axis where a linear one would press most curves to the ground; else one from 0."""
    positive = [value for value in values if value > 0]
    if positive and max(positive) / min(positive) >= LOGARITHMIC_FROM:
        axes.set_yscale("log")
        logarithmic(axes.yaxis)
    else:
        axes.set_ylim(bottom=0)
