"""Drawings over time: how busy the GPUs are, which tenants have them, and every round on every GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle

from libs.studies.report.drawing import Drawing, Numbers
from libs.studies.report.intervals import Interval, edges_of, held_by
from libs.studies.report.style import (
    GPU_TYPE_COLOURS,
    INK,
    JOB_COLOURS,
    MUTED,
    PAPER,
    RULE,
    by_appearance,
    canvas,
    mixed,
    readable_on,
    stacked,
    styled,
)
from libs.studies.report.ticks import percent_ticks, time_unit

BINS = 240
MOST_GPUS, MOST_ROUNDS = 48, 40
"""What one Gantt chart shows of a larger cluster and a longer run."""
NAMED_FROM = 0.0062
"""Part of the chart's width that one letter of a job's id needs."""


def utilisation(
    intervals: Sequence[Interval], gpus: Mapping[str, int], name: str = "utilisation", of: str = ""
) -> Drawing:
    """The part of each type's GPUs that is held, and of all together.

    Args:
        intervals: of the whole run; at least one.
        gpus: {GPU type: GPUs} of the cluster.
        name: of the files.
        of: what run this is, for the title.
    """
    edges = edges_of(intervals, BINS)
    held = held_by(intervals, lambda interval: interval.gpu_type, edges)
    unit, per_unit = time_unit(edges[-1] - edges[0])
    total = np.sum(list(held.values()), axis=0) / sum(gpus.values())
    colours = {"all": INK, **by_appearance(gpus, GPU_TYPE_COLOURS)}
    counts = {"all": sum(gpus.values()), **gpus}
    with styled():
        figure, bands = stacked(len(counts), height=0.55 + 0.72 * len(counts))
        for axes, (gpu_type, count) in zip(bands, counts.items(), strict=True):
            ratio = total if gpu_type == "all" else held.get(gpu_type, np.zeros(BINS)) / count
            colour = colours[gpu_type]
            axes.stairs(ratio, edges / per_unit, fill=True, color=mixed(colour, PAPER, 0.72))
            axes.stairs(ratio, edges / per_unit, baseline=None, color=colour, linewidth=1.2)
            axes.set_ylim(0, 1.04)
            axes.set_yticks([0, 0.5, 1.0])
            axes.yaxis.set_major_formatter(percent_ticks())
            axes.tick_params(axis="y", labelsize=7.5)
            words = f"{gpu_type} ({count})\nmean {float(np.mean(ratio)):.0%}"
            axes.text(1.012, 0.5, words, transform=axes.transAxes, va="center", fontsize=9)
            axes.set_xlim(edges[0] / per_unit, edges[-1] / per_unit)
        bands[-1].set_xlabel(f"time ({unit})")
    rows = [
        [gpu_type, str(count), f"{float(np.mean(held.get(gpu_type, np.zeros(BINS)))) / count:.1%}"]
        for gpu_type, count in gpus.items()
    ]
    rows.append(["all", str(sum(gpus.values())), f"{float(np.mean(total)):.1%}"])
    caption = f"Means over {_length(edges[1] - edges[0])}. A GPU that two jobs share counts once."
    return Drawing(
        name,
        titled("GPU utilisation over time", of),
        caption,
        figure,
        Numbers(["GPU type", "GPUs", "mean utilisation"], rows),
    )


def shares(
    intervals: Sequence[Interval],
    gpus: Mapping[str, int],
    entitled: Mapping[str, float] | None = None,
    name: str = "shares",
    of: str = "",
) -> Drawing:
    """Which tenants (entities) have the GPUs, stacked up; what is left white is idle.

    Args:
        intervals: of the whole run; at least one.
        gpus: {GPU type: GPUs} of the cluster.
        entitled: {tenant: weight}, for the table; None: nothing is said about it.
        name: of the files.
        of: what run this is, for the title.
    """
    edges = edges_of(intervals, BINS)
    held = held_by(intervals, lambda interval: interval.tenant, edges)
    held = {tenant: held[tenant] / sum(gpus.values()) for tenant in sorted(held)}
    colours = by_appearance(held)
    unit, per_unit = time_unit(edges[-1] - edges[0])
    with styled():
        figure, (axes,) = canvas(height=3.4)
        below = np.zeros(BINS)
        for tenant, ratio in held.items():
            top = below + ratio
            face = mixed(colours[tenant], PAPER, 0.15)
            axes.stairs(top, edges / per_unit, baseline=below, fill=True, color=face, label=tenant)
            axes.stairs(top, edges / per_unit, baseline=None, color=PAPER, linewidth=0.8)
            below = top
        _time_axis(axes, unit, edges[0] / per_unit, edges[-1] / per_unit)
        axes.set_ylabel("part of all GPUs")
        axes.set_ylim(0, 1.0)
        axes.yaxis.set_major_formatter(percent_ticks())
        handles, labels = axes.get_legend_handles_labels()
        axes.legend(handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    weights = {tenant: (entitled or {}).get(tenant, 1.0) for tenant in held}
    rows = [
        [tenant, f"{float(np.mean(ratio)):.1%}"]
        + ([f"{weights[tenant] / sum(weights.values()):.1%}"] if entitled is not None else [])
        for tenant, ratio in held.items()
    ]
    heads = ["tenant", "mean share"] + (["entitled, all active"] if entitled is not None else [])
    caption = f"Means over {_length(edges[1] - edges[0])}; jobs that share a GPU have equal parts of it."
    return Drawing(name, titled("Shares over time", of), caption, figure, Numbers(heads, rows))


def gantt(
    intervals: Sequence[Interval],
    round_s: float | None = None,
    begin_s: float | None = None,
    end_s: float | None = None,
    name: str = "rounds",
    of: str = "",
) -> Drawing:
    """Every GPU is a line, every stretch of a job a bar. Jobs that share a GPU have half of the height.

    Args:
        intervals: of the run, or of the part that matters; at least one.
        round_s: length of a round, for thin lines between rounds.
        begin_s, end_s: what is shown; by default the 40 rounds in which most jobs run, or everything.
        name: of the files.
        of: what run this is, for the title.
    """
    busiest_s, last_s = _busiest(intervals, MOST_ROUNDS * round_s if round_s else None)
    begin_s, end_s = busiest_s if begin_s is None else begin_s, last_s if end_s is None else end_s
    inside = [each for each in intervals if each.end_s > begin_s and each.start_s < end_s]
    every = sorted({(each.gpu_type, *each.gpu) for each in intervals}, key=lambda gpu: (_order(intervals, gpu[0]), gpu))
    gpus = _some_of_each_type(every)
    rows = {(node_id, index): row for row, (_, node_id, index) in enumerate(gpus)}
    inside = [each for each in inside if each.gpu in rows]
    ordered = sorted(inside, key=lambda each: (each.start_s, rows[each.gpu]))
    colours = by_appearance((each.job_id for each in ordered), JOB_COLOURS)
    unit, per_unit = time_unit(end_s - begin_s)
    with styled():
        figure, (axes,) = canvas(width=9.4, height=max(1.6, 0.19 * len(gpus) + 0.8))
        axes.grid(visible=False)
        _bars(axes, inside, rows, colours, (begin_s, end_s), per_unit)
        _round_lines(axes, round_s, begin_s, end_s, per_unit)
        _gpu_axis(axes, gpus)
        _time_axis(axes, unit, begin_s / per_unit, end_s / per_unit)
    shown = "" if len(gpus) == len(every) else f" {len(gpus)} of {len(every)} GPUs are shown."
    lines = f" Thin lines: rounds of {_length(round_s)}." if round_s else ""
    caption = f"One colour per job (colours repeat); half height: two jobs share the GPU; white: idle.{lines}{shown}"
    jobs, unsaid = len({each.job_id for each in inside}), common_beginning(each.job_id for each in inside)
    if unsaid:
        caption += f" Ids are shown without {unsaid}."
    numbers = Numbers(["shown", ""], [["jobs", str(jobs)], ["bars", str(len(inside))], ["GPUs", str(len(gpus))]])
    return Drawing(name, titled("Rounds on every GPU", of), caption, figure, numbers)


def _busiest(intervals: Sequence[Interval], length_s: float | None) -> tuple[float, float]:
    """Begin and end of the window of this length with most jobs, and among those most GPU time; the first of them."""
    first_s, last_s = min(each.start_s for each in intervals), max(each.end_s for each in intervals)
    if length_s is None or last_s - first_s <= length_s:
        return first_s, last_s
    jobs: dict[int, set[str]] = {}
    gpu_s: dict[int, float] = {}
    for each in intervals:
        for window in range(int(each.start_s // length_s), int(each.end_s // length_s) + 1):
            inside_s = min(each.end_s, (window + 1) * length_s) - max(each.start_s, window * length_s)
            if inside_s > 0:
                jobs.setdefault(window, set()).add(each.job_id)
                gpu_s[window] = gpu_s.get(window, 0.0) + inside_s
    best = min(gpu_s, key=lambda window: (-len(jobs[window]), -gpu_s[window], window))
    return best * length_s, (best + 1) * length_s


def _bars(
    axes: Axes,
    inside: Sequence[Interval],
    rows: Mapping[tuple[str, int], int],
    colours: Mapping[str, str],
    window: tuple[float, float],
    per_unit: float,
) -> None:
    begin_s, end_s = window
    unsaid = len(common_beginning(each.job_id for each in inside))
    rectangles, faces = [], []
    for each, (lane, lanes) in zip(inside, _lanes(inside), strict=True):
        start, end = max(each.start_s, begin_s), min(each.end_s, end_s)
        height = 0.82 / lanes
        bottom = rows[each.gpu] - 0.41 + lane * height
        rectangles.append(Rectangle((start / per_unit, bottom), (end - start) / per_unit, height))
        faces.append(colours[each.job_id])
        words = each.job_id[unsaid:]
        if lanes == 1 and end - start >= (end_s - begin_s) * NAMED_FROM * (1 + len(words)):
            axes.text(
                (start + end) / 2 / per_unit,
                rows[each.gpu],
                words,
                ha="center",
                va="center",
                fontsize=6.2,
                color=readable_on(faces[-1]),
                clip_on=True,
            )
    axes.add_collection(PatchCollection(rectangles, facecolors=faces, edgecolors=PAPER, linewidths=0.7))


def common_beginning(job_ids: Iterable[str]) -> str:
    """What all ids begin with, so that it need not be said on every bar; nothing where it would be all of one."""
    different = sorted(set(job_ids))
    if len(different) < 2:
        return ""
    same = takewhile(lambda letters: letters[0] == letters[1], zip(different[0], different[-1], strict=False))
    beginning = "".join(letter for letter, _ in same)
    return "" if beginning in different else beginning


def _lanes(inside: Sequence[Interval]) -> list[tuple[int, int]]:
    """(lane, lanes) of each bar: bars of one GPU that overlap are side by side."""
    found: list[tuple[int, int]] = []
    per_gpu: dict[tuple[str, int], list[Interval]] = {}
    for each in inside:
        per_gpu.setdefault(each.gpu, []).append(each)
    for each in inside:
        together = [other for other in per_gpu[each.gpu] if other.start_s < each.end_s and other.end_s > each.start_s]
        others = sorted({other.job_id for other in together})
        found.append((others.index(each.job_id), len(others)))
    return found


def _round_lines(axes: Axes, round_s: float | None, begin_s: float, end_s: float, per_unit: float) -> None:
    if not round_s or (end_s - begin_s) / round_s > 2 * MOST_ROUNDS:
        return
    first = np.ceil(begin_s / round_s) * round_s
    for moment in np.arange(first, end_s, round_s):
        axes.axvline(moment / per_unit, color=RULE, linewidth=0.6, zorder=0)


def _gpu_axis(axes: Axes, gpus: Sequence[tuple[str, str, int]]) -> None:
    """Servers by name, GPU types apart by a rule."""
    nodes: dict[str, list[int]] = {}
    for row, (_, node_id, _index) in enumerate(gpus):
        nodes.setdefault(node_id, []).append(row)
    axes.set_yticks([float(np.mean(rows)) for rows in nodes.values()], list(nodes), fontsize=8)
    axes.tick_params(axis="y", length=0)
    for previous, following in zip(range(len(gpus) - 1), range(1, len(gpus)), strict=True):
        if gpus[previous][1] != gpus[following][1]:
            apart = gpus[previous][0] != gpus[following][0]
            axes.axhline(following - 0.5, color=MUTED if apart else RULE, linewidth=1.0 if apart else 0.6, zorder=0)
    axes.set_ylim(len(gpus) - 0.5, -0.5)


def _some_of_each_type(gpus: list[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    """All GPUs, or equally many of each type when there are too many."""
    if len(gpus) <= MOST_GPUS:
        return gpus
    types = list(dict.fromkeys(gpu_type for gpu_type, _, _ in gpus))
    most = MOST_GPUS // len(types)
    return [gpu for chosen in types for gpu in [each for each in gpus if each[0] == chosen][:most]]


def _order(intervals: Sequence[Interval], gpu_type: str) -> int:
    """GPU types in order of first appearance."""
    return list(dict.fromkeys(each.gpu_type for each in intervals)).index(gpu_type)


def _time_axis(axes: Axes, unit: str, begin: float, end: float) -> None:
    axes.set_xlabel(f"time ({unit})")
    axes.set_xlim(begin, end)


def titled(title: str, of: str) -> str:
    """A title that says of which run."""
    return f"{title}: {of}" if of else title


def _length(seconds: float) -> str:
    unit, per_unit = time_unit(seconds * 1.01)
    return f"{seconds / per_unit:.3g} {unit}"
