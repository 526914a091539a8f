"""A picture of a sweep: how soon it found what it found, and how each trial learned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from libs.cli.sweep_views import best
from libs.studies.report.drawing import Drawing
from libs.studies.report.style import CATEGORIES, INK, MUTED, PAPER, by_appearance, canvas, mixed, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = dict[str, Any]
GIVEN_UP = mixed(MUTED, PAPER, 0.55)


def drawing(found: Row, curves: Row) -> Drawing:
    """The best value so far over time, and the learning curves over their steps.

    Args:
        found: the sweep, with its trials.
        curves: of the sweep; at least one trial has reported something.
    """
    with styled():
        figure, (best_so_far, learning) = canvas(width=10.0, height=4.2, columns=2)
        _draw_best(best_so_far, found, curves)
        _draw_curves(learning, found, curves)
        for axes in (best_so_far, learning):
            axes.set_ylabel(found["metric"])
            if found["target"] is not None:
                axes.axhline(found["target"], color=MUTED, linestyle=":", linewidth=1.2)
        figure.suptitle(f"{found['name']}: {best(found)}", fontsize=10.5, x=0.01, ha="left")
    caption = "Dotted: the target. Grey: trials that were given up; thick: the best trial."
    return Drawing("sweep", f"Sweep {found['id']}", caption, figure)


def _draw_best(axes: Axes, found: Row, curves: Row) -> None:
    """Steps, up to the end of the sweep or the last report."""
    times = [point["time_s"] for point in curves["best"]]
    values = [point["value"] for point in curves["best"]]
    reported_s = max(point["time_s"] for curve in curves["trials"] for point in curve["points"])
    until_s = reported_s if found["ended_s"] is None else max(found["ended_s"] - found["submitted_s"], times[-1])
    axes.step([*times, until_s], [*values, values[-1]], where="post", color=INK)
    axes.plot(times, values, color=INK, linestyle="none", marker="o", markersize=3.5)
    axes.set_title("best so far")
    axes.set_xlabel("seconds since its arrival")
    axes.set_xlim(left=0)


def _draw_curves(axes: Axes, found: Row, curves: Row) -> None:
    pruned = {trial["number"] for trial in found["trials"] if trial["state"] == "PRUNED"}
    kept = [str(curve["number"]) for curve in curves["trials"] if curve["number"] not in pruned]
    colours = by_appearance(kept, CATEGORIES)
    for curve in curves["trials"]:
        steps = [point["step"] for point in curve["points"]]
        values = [point["value"] for point in curve["points"]]
        is_best = curve["number"] == found["best_trial"]
        look: dict[str, Any] = {
            "color": colours.get(str(curve["number"]), GIVEN_UP),
            "linewidth": 2.6 if is_best else 1.1,
        }
        axes.plot(steps, values, marker="o" if len(steps) == 1 else "", zorder=3 if is_best else 2, **look)
    axes.set_title("trials")
    axes.set_xlabel("step")
