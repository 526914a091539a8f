"""How figures look: one colour per policy wherever it appears, its variants told apart by line and marker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

INK, MUTED, RULE, PAPER = "#1c2530", "#5b6673", "#dfe4ea", "#ffffff"
POLICY_COLOURS = {
    "max_min_fairness": "#1f5fa8",
    "finish_time_fairness": "#c2571a",
    "min_makespan": "#237a52",
    "fifo": "#6a4c93",
    "artifact_fifo": "#9a4f8f",
    "shortest_job_first": "#b5862a",
    "max_throughput": "#0f8b8d",
    "max_throughput_slo": "#2b6f77",
    "min_cost": "#a83a5b",
    "min_cost_slo": "#d07a3e",
    "hierarchical": "#3c6e3f",
    "allox": "#c8324c",
    "gandiva_packing": "#6f8f1f",
    "gandiva": "#46761c",
    "isolated": "#7b8794",
    "backfill": "#3d4a5c",
    "strict_fifo": "#94653b",
    "antman": "#b8436b",
    "capacity scheduler": "#22303f",
    "capacity scheduler that preempts": "#8f9bb3",
    "packing with known profiles": "#a3b13a",
}
CATEGORIES = (
    "#1f5fa8",
    "#e08a3c",
    "#2f9e77",
    "#b8436b",
    "#7d5fb2",
    "#c9a227",
    "#3aa6c4",
    "#8a5a44",
    "#6a7b8c",
    "#94b04a",
)
"""For tenants, in order of appearance."""
GPU_TYPE_COLOURS = ("#12406f", "#3f88c5", "#9cc5e8", "#e08a3c", "#b8436b", "#7b8794")
SETTINGS: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.labelsize": 9.5,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": RULE,
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.9,
    "lines.markersize": 5,
    "figure.facecolor": PAPER,
    "svg.hashsalt": "sanjaya",
    "svg.fonttype": "path",
}


@dataclass(frozen=True)
class Look:
    """How one curve is drawn."""

    colour: str
    line: str = "-"
    marker: str = "o"
    hollow: bool = False

    @property
    def curve(self) -> dict[str, Any]:
        """Arguments of a line."""
        return {"color": self.colour, "linestyle": self.line}

    @property
    def points(self) -> dict[str, Any]:
        """Arguments of a line with markers."""
        face = PAPER if self.hollow else self.colour
        return {**self.curve, "marker": self.marker, "markerfacecolor": face, "markeredgewidth": 1.4}


def look(label: str) -> Look:
    """Of a policy with its options, as `runs.label` writes them."""
    policy, *options = label.split(", ")
    colour = POLICY_COLOURS.get(policy, INK)
    if "agnostic" in options:
        return Look(mixed(colour, PAPER, 0.38), "--", "o", hollow=True)
    if "space sharing" in options or "packing" in options:
        return Look(mixed(colour, INK, 0.45), "-", "s")
    if "ideal" in options:
        return Look(mixed(colour, INK, 0.25), ":", "D", hollow=True)
    if "water filling" in options:
        return Look(colour, "-.", "^")
    return Look(colour)


def mixed(colour: str, other: str, ratio: float) -> str:
    """`colour` with this part of `other`."""
    pairs = zip(to_rgb(colour), to_rgb(other), strict=True)
    red, green, blue = (a * (1 - ratio) + b * ratio for a, b in pairs)
    return to_hex((red, green, blue))


def readable_on(colour: str) -> str:
    """The colour of text on this ground."""
    red, green, blue = to_rgb(colour)
    return PAPER if 0.299 * red + 0.587 * green + 0.114 * blue < 0.6 else INK


JOB_COLOURS = (*(mixed(each, PAPER, 0.08) for each in CATEGORIES), *(mixed(each, PAPER, 0.5) for each in CATEGORIES))
"""For jobs, of which there are many."""


def by_appearance(names: Iterable[str], colours: tuple[str, ...] = CATEGORIES) -> dict[str, str]:
    """{name: colour}; colours begin again when there are more names."""
    return {name: colours[place % len(colours)] for place, name in enumerate(dict.fromkeys(names))}


@contextmanager
def styled() -> Iterator[None]:
    """The settings of the house, for drawing and for writing."""
    with matplotlib.rc_context(SETTINGS):
        yield


def canvas(width: float = 8.6, height: float = 4.0, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """An empty figure, sizes in inches, with axes side by side."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = [figure.add_subplot(1, columns, place + 1) for place in range(columns)]
    for each in axes:
        each.grid(axis="y")
    return figure, axes


def stacked(rows: int, height: float, width: float = 8.6) -> tuple[Figure, list[Axes]]:
    """Axes above each other that share what goes along the horizontal axis, labelled at the bottom alone."""
    figure = Figure(figsize=(width, height), layout="constrained")
    bands: list[Axes] = []
    for row in range(rows):
        axes = figure.add_subplot(rows, 1, row + 1, sharex=bands[0] if bands else None)
        axes.grid(axis="y")
        axes.tick_params(axis="x", labelbottom=row == rows - 1)
        bands.append(axes)
    return figure, bands


def legend_beside(axes: Axes, **more: Any) -> None:
    """To the right of the axes, where it hides nothing."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, **more)
