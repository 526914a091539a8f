"""Plots of a paper drawn again: what was measured as lines, the paper's own points beside it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

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
    with styled():
        figure, (axes,) = canvas()
        for curve, points in curves:
            style, places = look(curve.label), sorted(points)
            if places:
                low, high = [min(points[x]) for x in places], [max(points[x]) for x in places]
                axes.fill_between(places, low, high, color=style.colour, alpha=0.16, linewidth=0)
                axes.plot(places, [fmean(points[x]) for x in places], label=curve.label, **style.points)
            if curve.paper:
                across, up = zip(*curve.paper, strict=True)
                axes.plot(across, up, "x", color=style.colour, markersize=7, markeredgewidth=1.6)
        axes.plot([], [], "x", color=MUTED, markersize=7, markeredgewidth=1.6, label="the paper's points")
        axes.set_xlabel(picture.place)
        axes.set_ylabel(picture.value)
        scale_for(axes, _heights(curves))
        axes.margins(x=0.08)
        legend_beside(axes)
    caption = "Lines: measured here, mean and range over seeds. Crosses: the paper's points."
    return Drawing(picture.name, picture.title, caption, figure, _numbers(curves))


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
