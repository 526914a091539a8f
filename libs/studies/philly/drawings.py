"""A finding as a drawing: distributions as curves, tables as bars, with all numbers beneath."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from libs.studies.philly.findings import Entry, Finding, Panel, Unit
from libs.studies.report.drawing import Drawing, Numbers
from libs.studies.report.style import by_appearance, canvas, legend_beside, styled
from libs.studies.report.ticks import logarithmic, percent_ticks

MOST_POINTS = 300
"""Of one curve."""
LEAST_LOGARITHMIC = 1 / 60
"""What is shorter (a second, of minutes) is drawn as that."""
WIDTH, HEIGHT = 8.6, 3.8
MOST_LEVEL = 6
"""More labels than that under bars are slanted."""


def shown(entry: Entry) -> str:
    """A value as tables show it."""
    value = entry.value
    return {
        Unit.COUNT: f"{value:,.0f}",
        Unit.RATIO: f"{value:.1%}",
        Unit.MEAN: f"{value:.2f}",
        Unit.MINUTES: f"{value:,.2f} min",
    }[entry.unit]


def drawing(found: Finding) -> Drawing:
    """The drawing of a finding that has entries."""
    name = found.where.lower().replace(" ", "-")
    caption = "Bars: the columns named in the legend." if found.bars else "The part of all that has at most that value."
    with styled():
        figure, axes = canvas(WIDTH, HEIGHT, columns=1 if found.bars else len(found.panels))
        if found.bars:
            _draw_bars(axes[0], found)
        else:
            _draw_panels(axes, found.panels)
    return Drawing(name, found.title, caption, figure, _numbers(found))


def _draw_panels(axes: Sequence[Axes], panels: Sequence[Panel]) -> None:
    labels = [label for panel in panels for label in panel.curves]
    colours = by_appearance(labels)
    for place, (own, panel) in enumerate(zip(axes, panels, strict=True)):
        for label, values in panel.curves.items():
            _draw_curve(own, values, label, colours[label], panel.logarithmic)
        if panel.logarithmic:
            own.set_xscale("log")
            logarithmic(own.xaxis)
            own.tick_params(axis="x", labelrotation=60, labelsize=7)
        own.set_title(panel.title, fontsize=9)
        own.set_xlabel(panel.unit if len(panels) == 1 else panel.unit.replace(" (", "\n("))
        own.set_ylim(0, 1.01)
        own.yaxis.set_major_formatter(percent_ticks())
        own.tick_params(axis="y", labelleft=place == 0)
    legend_beside(axes[-1])


def _draw_curve(axes: Axes, values: Sequence[float], label: str, colour: str, is_logarithmic: bool) -> None:
    ascending = np.sort(np.asarray(values, dtype=float))
    if is_logarithmic:
        ascending = np.maximum(ascending, LEAST_LOGARITHMIC)
    ratios = np.linspace(0, 1, min(len(ascending), MOST_POINTS) + 1)[1:]
    places = np.ceil(ratios * len(ascending)).astype(int) - 1
    axes.plot(ascending[np.maximum(places, 0)], ratios, drawstyle="steps-post", label=label, color=colour)


def _draw_bars(axes: Axes, found: Finding) -> None:
    rows = [row for row in _rows(found) if any(found.value(row, column) is not None for column in found.bars)]
    colours = by_appearance(found.bars)
    width = 0.8 / len(found.bars)
    for place, column in enumerate(found.bars):
        values = [found.value(row, column) or 0.0 for row in rows]
        at = np.arange(len(rows)) + (place - (len(found.bars) - 1) / 2) * width
        axes.bar(at, values, width * 0.94, label=column, color=colours[column])
    axes.set_xticks(range(len(rows)), rows)
    if len(rows) > MOST_LEVEL:
        axes.tick_params(axis="x", labelrotation=60)
    if all(each.unit is Unit.RATIO for each in found.entries if each.column in found.bars):
        axes.yaxis.set_major_formatter(percent_ticks())
    legend_beside(axes)


def _rows(found: Finding) -> list[str]:
    return list(dict.fromkeys(each.row for each in found.entries))


def _numbers(found: Finding) -> Numbers:
    columns = list(dict.fromkeys(each.column for each in found.entries))
    cells = {(each.row, each.column): shown(each) for each in found.entries}
    rows = [[row, *(cells.get((row, column), "–") for column in columns)] for row in _rows(found)]
    return Numbers(["", *columns], rows)
