"""Drawings of hyper-parameter searches: the best value found so far against time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from libs.studies.experiments.runs import Result
from libs.studies.report.drawing import Drawing, Numbers
from libs.studies.report.style import by_appearance, canvas, legend_beside, styled


def best_so_far(results: Sequence[Result], name: str, title: str, way: Callable[[Result], str]) -> Drawing:
    """One line per search; searches of one way have one colour.

    Args:
        results: each with a sweep.
        name: of the files.
        title: of the figure.
        way: what the legend calls the run's way to search.
    """
    colours = by_appearance(way(result) for result in results)
    named: dict[str, None] = {}
    with styled():
        figure, (axes,) = canvas()
        for result in results:
            sweep, label = result.document["sweeps"][0], way(result)
            hours = [time_s / 3600 for time_s, _ in sweep["best_so_far"]]
            values = [value for _, value in sweep["best_so_far"]]
            axes.step(
                hours,
                values,
                where="post",
                color=colours[label],
                linewidth=1.4,
                alpha=0.85,
                label=None if label in named else label,
            )
            axes.plot(hours[-1:], values[-1:], "o", color=colours[label], markersize=4)
            named[label] = None
        axes.set_xscale("log")
        axes.set_xlabel("time since the search began (hours)")
        axes.set_ylabel("best value so far")
        legend_beside(axes)
    return Drawing(name, title, "One line per seed, up to the last improvement.", figure, _numbers(results, way))


def _numbers(results: Sequence[Result], way: Callable[[Result], str]) -> Numbers:
    rows = []
    for label in dict.fromkeys(way(result) for result in results):
        sweeps = [result.document["sweeps"][0] for result in results if way(result) == label]
        took = [sweep["took_s"] / 3600 for sweep in sweeps if sweep["took_s"] is not None]
        reached = sum(sweep["outcome"] == "target_reached" for sweep in sweeps)
        pruned = fmean(sweep["pruned"] for sweep in sweeps)
        rows.append([label, f"{fmean(took):.2f}" if took else "–", f"{reached} of {len(sweeps)}", f"{pruned:.0f}"])
    return Numbers(["search", "hours, mean", "target reached", "trials given up"], rows)
