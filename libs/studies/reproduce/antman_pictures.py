"""Figures 1, 2, 5, 10, 11 and 12 of AntMan (OSDI'20), drawn from whole results or from what is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from statistics import fmean

from libs.sim.sharing.costs import GB, GROWTH_S_PER_BYTE, SHRINK_S_PER_BYTE
from libs.sim.sharing.usage import BINS
from libs.studies.experiments.runs import Result
from libs.studies.generators.antman import GUARANTEED, OPPORTUNISTIC
from libs.studies.generators.antman_tasks import MB, MINIBATCH_POINT, MODEL_POINT, draw_tasks
from libs.studies.report.drawing import Drawing, Numbers
from libs.studies.report.style import CATEGORIES, INK, MUTED, canvas, legend_beside, readable_on, styled
from libs.studies.report.ticks import percent_ticks
from libs.studies.reproduce.antman_computed import FIGURE_10
from libs.studies.reproduce.guest_metrics import gangs, rows_of
from libs.studies.reproduce.study import Chapter

CUTS = (0.1, 0.5, 0.9)
"""Parts of its memory that a job loses in figure 10."""
FIGURE_11 = {"GoogleNet": 4.0, "Inception3": 16.0, "VGG16": 17.0}
"""{model: GB that it moves in figure 11b}"""
FIGURE_12 = {"alone": 20.1, "packed": 105.2, "AntMan": 20.8}
"""{way of sharing: minutes that ESPnet takes in the text of section 5.1}"""
BAR = 0.36
"""Width of a bar, of two for each way of sharing."""
Points = Sequence[tuple[float, float]]
DRAWN = 300
"""Points of one curve of a distribution."""


def _lines(
    name: str,
    title: str,
    caption: str,
    axes_of: Sequence[tuple[str, dict[str, Points]]],
    crosses: Sequence[Points] = (),
    *,
    up: str,
    percent: bool = True,
) -> Drawing:
    """Curves on axes side by side; the paper's points as crosses on each."""
    with styled():
        figure, bands = canvas(columns=len(axes_of))
        for place, (axes, (across, curves)) in enumerate(zip(bands, axes_of, strict=True)):
            for colour, (label, points) in zip(CATEGORIES, curves.items(), strict=False):
                xs, ys = zip(*points, strict=True) if points else ((), ())
                axes.plot(xs, ys, "-", color=colour, label=label)
            if place < len(crosses):
                xs, ys = zip(*crosses[place], strict=True)
                axes.plot(xs, ys, "x", color=MUTED, markersize=8, markeredgewidth=1.6, label="the paper")
            axes.set_xlabel(across)
            if percent:
                axes.yaxis.set_major_formatter(percent_ticks())
        bands[0].set_ylabel(up)
        legend_beside(bands[-1])
    rows = [
        [f"{label}: {across}", *(f"{y:.3g} at {x:.3g}" for x, y in _few(points))]
        for across, curves in axes_of
        for label, points in curves.items()
    ]
    heads = ["", *("" for _ in range(max((len(row) for row in rows), default=1) - 1))]
    return Drawing(
        name, title, caption, figure, Numbers(heads, [[*row, *[""] * (len(heads) - len(row))] for row in rows])
    )


def _few(points: Points, most: int = 6) -> Points:
    step = max(1, len(points) // most)
    return list(points)[::step]


def _said(result: Result) -> str:
    """Which way of sharing a run has."""
    spec = result.spec
    if spec.guests == "none":
        return "without guests"
    return {"antman": "AntMan", "leave": "alone", "pack": "packed", "umem": "UMem"}[spec.beside.value]


def _figure_1(results: Sequence[Result]) -> list[Drawing]:
    def cdf(field: str) -> dict[str, Points]:
        found: dict[str, Points] = {}
        for result in results:
            seconds = result.document.get("sharing", {}).get(field)
            if seconds and result.spec.seed == 0:
                parts = list(accumulate(each / sum(seconds) for each in seconds))
                found[_said(result)] = [(place / BINS, part) for place, part in enumerate([0.0, *parts[:-1]])]
        return found

    axes = [("memory in use", cdf("memory_s")), ("part of the time in which it computes", cdf("busy_s"))]
    caption = "GPUs in use, weighted by time. Crosses: what the paper says of its cluster before AntMan."
    crosses = [[(0.5, 0.8)], [(0.8, 0.9)]]
    return [_lines("fig1", "Use of GPUs over a week", caption, axes, crosses, up="part of the GPUs, up to this")]


def _figure_2(results: Sequence[Result]) -> list[Drawing]:
    curves: dict[str, Points] = {}
    for result in results:
        sizes: dict[int, list[float]] = {}
        for gang in gangs(result):
            sizes.setdefault(gang.gpus, []).append(gang.idle_s / 3600)
        if sizes and result.spec.seed == 0:
            curves[_said(result)] = [(float(size), fmean(sizes[size])) for size in sorted(sizes)]
    caption = "GPU hours between the moment at which a GPU was there for a gang and the gang's start, mean per gang."
    axes = [("GPUs of the gang", curves)]
    if not curves:
        return []
    return [_lines("fig2", "Waiting of gangs", caption, axes, up="GPU hours", percent=False)]


def _figure_5(results: Sequence[Result]) -> list[Drawing]:
    tasks = draw_tasks(0)

    def cdf(values: Sequence[float]) -> dict[str, Points]:
        ordered = sorted(values)
        step = max(1, len(ordered) // DRAWN)
        return {"drawn": [(value, (place + 1) / len(ordered)) for place, value in enumerate(ordered)][::step]}

    sizes = cdf([task.model_bytes / MB for task in tasks if task.model_bytes < 2000 * MB])
    times = cdf([task.minibatch_s * 1000 for task in tasks if task.minibatch_s < 3])
    crosses = [[(MODEL_POINT[1] / MB, MODEL_POINT[0])], [(MINIBATCH_POINT[1] * 1000, MINIBATCH_POINT[0])]]
    axes = [("size of the model (MB)", sizes), ("mini-batch (ms)", times)]
    caption = "Ten thousand drawn tasks. Crosses: the points that the paper's text gives."
    return [_lines("fig5", "Tasks of a production cluster", caption, axes, crosses, up="part of the tasks")]


def _figure_10(results: Sequence[Result]) -> list[Drawing]:
    curves: dict[str, Points] = {
        name: [(cut, demand.speed_with(round((1 - cut) * demand.memory_bytes))) for cut in (0.0, *CUTS)]
        for name, demand in FIGURE_10
    }
    caption = "What the models of these studies keep of their speed; read from the paper's figure, so an input."
    axes = [("part of the memory that is on the host", curves)]
    return [_lines("fig10", "Sensitivity to memory", caption, axes, up="speed")]


def _figure_11(results: Sequence[Result]) -> list[Drawing]:
    sizes = (0.0, *FIGURE_11.values())
    shrinks, grows = 1000 * GB * SHRINK_S_PER_BYTE.value, 1000 * GB * GROWTH_S_PER_BYTE.value
    curves: dict[str, Points] = {
        "shrinks": [(size, size * shrinks) for size in sizes],
        "grows back": [(size, size * grows) for size in sizes],
    }
    lost = ", ".join(f"{name} {size * (shrinks + grows) / 600:.2f} %" for name, size in FIGURE_11.items())
    caption = (
        "What the simulator charges for memory that moves; from the paper's figure 11a (crosses), so an input. "
        f"Of a job that does both once a minute that is: {lost}; the paper has at most 0.4 %."
    )
    axes = [("GB that move", curves)]
    crosses = [[(16.3, 17.0), (16.3, 115.0)]]
    return [_lines("fig11", "Memory that shrinks and grows", caption, axes, crosses, up="milliseconds", percent=False)]


def _figure_12(results: Sequence[Result]) -> list[Drawing]:
    ways = [_said(result) for result in results]
    minutes: dict[str, list[float | None]] = {
        label: [row["jct_s"] and row["jct_s"] / 60 for result in results for row in rows_of(result, tenant)]
        for tenant, label in ((GUARANTEED, "ESPnet, guaranteed"), (OPPORTUNISTIC, "ResNet-50"))
    }
    with styled():
        figure, (axes,) = canvas()
        for number, (colour, (label, heights)) in enumerate(zip(CATEGORIES, minutes.items(), strict=False)):
            places = [place + (number - 0.5) * BAR for place in range(len(ways))]
            bars = axes.bar(places, [height or 0.0 for height in heights], BAR, color=colour, label=label)
            words = ["–" if height is None else f"{height:.1f}" for height in heights]
            axes.bar_label(bars, words, label_type="center", color=readable_on(colour), fontsize=8.5)
        paper = [(place - 0.5 * BAR, FIGURE_12[way]) for place, way in enumerate(ways) if way in FIGURE_12]
        across, up = zip(*paper, strict=True) if paper else ((), ())
        axes.plot(across, up, "x", color=INK, markersize=8, markeredgewidth=1.6, label="the paper")
        axes.set_xticks(range(len(ways)), ways)
        axes.set_ylabel("minutes until it has ended")
        legend_beside(axes)
    rows = [
        [label, *("–" if height is None else f"{height:.1f}" for height in heights)]
        for label, heights in minutes.items()
    ]
    caption = "Crosses: the paper's minutes of ESPnet (20.1, 105.2 and 20.8); it prints none of ResNet-50."
    return [Drawing("fig12", "A pair on one GPU", caption, figure, Numbers(["minutes", *ways], rows))]


def _chapter(
    title: str, text: str, claims: Sequence[str], draw: Callable[[Sequence[Result]], list[Drawing]]
) -> Chapter:
    return Chapter(title, text, claims, draw)


CHAPTERS = (
    _chapter("Figure 1: use of GPUs", "A simulated week, guests off and on.", ("fig1-memory-shift",), _figure_1),
    _chapter("Figure 2: gangs wait", "The same week: gangs that are not complete.", ("fig2-used",), _figure_2),
    _chapter("Figure 5: tasks", "What the generator draws.", ("fig1-memory-shift",), _figure_5),
    _chapter("Figure 10: memory", "Speeds of jobs with a part of their memory.", ("fig1-memory-shift",), _figure_10),
    _chapter("Figure 11: moving memory", "How long memory takes to move.", ("table2-owner",), _figure_11),
    _chapter("Figure 12: a pair", "ESPnet with a guest.", ("fig12-owner", "fig12-packed"), _figure_12),
)
