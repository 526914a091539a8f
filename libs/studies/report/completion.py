"""Drawings of completion times: against load, and as distributions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

import numpy as np

from libs.studies.experiments.runs import Result
from libs.studies.report.drawing import Drawing, Numbers
from libs.studies.report.style import canvas, legend_beside, look, styled
from libs.studies.report.ticks import logarithmic, percent_ticks, scale_for

HOUR_S = 3600.0

MOST_POINTS = 300
"""Of one curve of a distribution."""
Metric = Callable[[Result], float | None]


def average_jct_h(result: Result) -> float | None:
    """Average completion time in hours."""
    seconds = result.summary.get("avg_jct_s")
    return None if seconds is None else seconds / HOUR_S


def load(result: Result) -> float | None:
    """Jobs per hour."""
    return result.spec.jobs_per_hour


def round_minutes(result: Result) -> float | None:
    """Length of a round in minutes."""
    return result.spec.round_s / 60


def against(
    results: Iterable[Result],
    name: str = "jct-against-load",
    title: str = "Average completion time against load",
    *,
    place: Metric = load,
    place_unit: str = "load (jobs per hour)",
    value: Metric = average_jct_h,
    value_unit: str = "average completion time (hours)",
) -> Drawing:
    """One line per policy through the means over seeds; the band reaches from the lowest to the highest seed.

    Args:
        results: those without a place or a value are left out.
        name: of the files.
        title: of the figure.
        place, place_unit: what goes along the horizontal axis.
        value, value_unit: what goes up.
    """
    curves = _curves(results, place, value)
    values = [one for points in curves.values() for seeds in points.values() for one in seeds]
    with styled():
        figure, (axes,) = canvas()
        for label, points in curves.items():
            places, style = sorted(points), look(label)
            low, high = [min(points[x]) for x in places], [max(points[x]) for x in places]
            axes.fill_between(places, low, high, color=style.colour, alpha=0.16, linewidth=0)
            axes.plot(places, [fmean(points[x]) for x in places], label=label, **style.points)
        axes.set_xlabel(place_unit)
        axes.set_ylabel(value_unit)
        scale_for(axes, values)
        axes.set_xlim(left=0)
        legend_beside(axes)
    seeds = max((len(values) for points in curves.values() for values in points.values()), default=0)
    band = f" Bands: lowest to highest of {seeds} seeds." if seeds > 1 else ""
    return Drawing(name, title, f"Mean over the measured jobs; lower is better.{band}", figure, _numbers(curves))


def _curves(results: Iterable[Result], place: Metric, value: Metric) -> dict[str, dict[float, list[float]]]:
    """{label: {place: values of the seeds}}"""
    curves: dict[str, dict[float, list[float]]] = {}
    for result in results:
        x, y = place(result), value(result)
        if x is not None and y is not None:
            curves.setdefault(result.spec.label, {}).setdefault(x, []).append(y)
    return curves


def _numbers(curves: dict[str, dict[float, list[float]]]) -> Numbers:
    places = sorted({x for points in curves.values() for x in points})
    rows = [
        [label, *(f"{fmean(points[x]):.2f}" if x in points else "–" for x in places)]
        for label, points in curves.items()
    ]
    return Numbers(["policy", *(f"{x:.3g}" for x in places)], rows)


def distribution(
    results: Iterable[Result],
    name: str = "jct-distribution",
    title: str = "Distribution of completion times",
    values_of: Callable[[Result], Sequence[float]] | None = None,
    unit: str = "completion time (hours)",
) -> Drawing:
    """The part of the measured jobs that had ended within a time, seeds pooled; one curve per policy."""
    pooled: dict[str, list[float]] = {}
    for result in results:
        pooled.setdefault(result.spec.label, []).extend((values_of or completion_times_h)(result))
    pooled = {label: sorted(values) for label, values in pooled.items() if values}
    with styled():
        figure, (axes,) = canvas(height=3.8)
        for label, values in pooled.items():
            style = look(label)
            ratios = np.linspace(0, 1, min(len(values), MOST_POINTS) + 1)[1:]
            times = [_quantile(values, ratio) for ratio in ratios]
            axes.plot(times, ratios, drawstyle="steps-post", markevery=0.09, label=label, **style.points)
        axes.set_xscale("log")
        logarithmic(axes.xaxis)
        axes.set_xlabel(unit)
        axes.set_ylabel("part of the jobs")
        axes.set_ylim(0, 1.01)
        axes.yaxis.set_major_formatter(percent_ticks())
        axes.grid(axis="x")
        legend_beside(axes)
    heads = ["policy", "jobs", "median", "90 %", "99 %", "mean"]
    rows = [
        [label, str(len(values)), *(f"{_quantile(values, q):.2f}" for q in (0.5, 0.9, 0.99)), f"{fmean(values):.2f}"]
        for label, values in pooled.items()
    ]
    caption = "A curve further to the left is better; what its upper end tells is how long the unluckiest wait."
    return Drawing(name, title, caption, figure, Numbers(heads, rows))


def completion_times_h(result: Result) -> list[float]:
    """Of the measured jobs that succeeded."""
    return [row["jct_s"] / HOUR_S for row in result.measured if row["status"] == "SUCCEEDED"]


def _quantile(ascending: Sequence[float], ratio: float) -> float:
    return ascending[max(0, int(np.ceil(ratio * len(ascending))) - 1)]
