"""Plots of a paper drawn again: what was measured as lines, the paper's own points beside it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from matplotlib.axes import Axes

from libs.studies.report.drawing import Drawing, Numbers
from libs.studies.report.style import MUTED, canvas, legend_beside, look, styled
from libs.studies.report.ticks import scale_for
from libs.studies.reproduce.comparing import Value
from libs.studies.reproduce.stated import Curve, Picture
from libs.studies.reproduce.study import Measured

Points = dict[float, list[float]]
"""{place: values of the seeds}"""


def drawing_of(picture: Picture, measured: Measured) -> Drawing | None:
    """The picture with what was measured of it; None: nothing was."""
    curves = [(curve, _points(curve, picture, measured)) for curve in picture.curves]
    if not any(points for _, points in curves):
        return None
    drawn = [(curve, points) for curve, points in curves if points]
    places = {place for _, points in drawn for place in points}
    papers = any(curve.paper for curve in picture.curves)
    grows = papers or len(places) > 1
    with styled():
        figure, (axes,) = canvas()
        (_curves if grows else _bars)(axes, drawn)
        for curve, points in curves:
            if curve.paper:
                across, up = zip(*curve.paper, strict=True)
                label = None if points else f"{curve.label}: paper only"
                colour = look(curve.label).colour
                axes.plot(across, up, "x", color=colour, markersize=7, markeredgewidth=1.6, label=label)
        if papers:
            axes.plot([], [], "x", color=MUTED, markersize=7, markeredgewidth=1.6, label="the paper's points")
        if grows:
            axes.set_xlabel(picture.place)
            axes.margins(x=0.08)
            legend_beside(axes)
        else:
            axes.set_xlabel(f"{picture.place}: {min(places):.3g}")
        axes.set_ylabel(picture.value)
        scale_for(axes, _heights(curves))
    caption = "Measured here: mean and range over seeds." + (" Crosses: the paper's points." if papers else "")
    return Drawing(picture.name, picture.title, caption, figure, _numbers(curves))


def _curves(axes: Axes, curves: Sequence[tuple[Curve, Points]]) -> None:
    """What was measured against the place, with the range of the seeds as a ground."""
    for curve, points in curves:
        style, places = look(curve.label), sorted(points)
        low, high = [min(points[x]) for x in places], [max(points[x]) for x in places]
        axes.fill_between(places, low, high, color=style.colour, alpha=0.16, linewidth=0)
        axes.plot(places, [fmean(points[x]) for x in places], label=curve.label, **style.points)


def _bars(axes: Axes, curves: Sequence[tuple[Curve, Points]]) -> None:
    """What was measured at the only place there is: nothing grows there, so that bars stand beside each other."""
    for number, (curve, points) in enumerate(curves):
        (seeds,) = points.values()
        mean = fmean(seeds)
        reach = [[max(0.0, mean - min(seeds))], [max(0.0, max(seeds) - mean)]]  # a mean is rounded
        axes.bar(number, mean, 0.55, color=look(curve.label).colour, yerr=reach, ecolor=MUTED, capsize=4)
    axes.set_xticks(range(len(curves)), [curve.label for curve, _ in curves])


def _points(curve: Curve, picture: Picture, measured: Measured) -> Points:
    points: dict[float, dict[int, float]] = {}
    for name in curve.claims:
        claim, _, role = name.partition("/")
        values: Sequence[Value] = measured.get(claim, {}).get(role, ())
        for each in values:
            if each.value is not None:
                points.setdefault(each.at, {})[each.seed] = each.value / picture.divided_by
    return {at: list(by_seed.values()) for at, by_seed in points.items()}


def _heights(curves: Sequence[tuple[Curve, Points]]) -> list[float]:
    ours = [value for _, points in curves for seeds in points.values() for value in seeds]
    return ours + [value for curve, _ in curves for _, value in curve.paper]


def _numbers(curves: Sequence[tuple[Curve, Points]]) -> Numbers:
    places = sorted({x for curve, points in curves for x in (*points, *(at for at, _ in curve.paper))})
    rows = []
    for curve, points in curves:
        rows.append([curve.label, *(f"{fmean(points[x]):.4g}" if x in points else "–" for x in places)])
        if curve.paper:
            paper = dict(curve.paper)
            rows.append([f"{curve.label}: paper", *(f"{paper[x]:.4g}" if x in paper else "–" for x in places)])
    return Numbers(["", *(f"{x:.3g}" for x in places)], rows)
