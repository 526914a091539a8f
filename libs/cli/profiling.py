"""`sanjaya profile`: what was measured of a job, in numbers and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from libs.cli.audit import ArchiveDir, Cell, opened
from libs.cli.context import NOT_FOUND, USAGE, Gateway, client, fail
from libs.cli.output import duration, rate
from libs.cli.references import completions, id_of
from libs.cli.writing import check_picture, write_picture
from libs.kernel.words import bytes_of, counted

if TYPE_CHECKING:
    from libs.contracts.introspection import JobProfiled
    from libs.inspect.profile import Profile
    from libs.studies.report.drawing import Drawing

MEBIBYTE = 1 << 20
NOTHING = float("nan")
"""Where a line has a gap."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(profile)


def profile(
    job: Annotated[
        str,
        typer.Argument(
            help="Id; of the live cell also the beginning of one, a name, or `last`.",
            autocompletion=completions,
            metavar="JOB",
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Also a picture: FILE.svg or FILE.png.")] = None,
    log: Annotated[
        str | None, typer.Option(help="An exported file, an archive, a log.db or a bus URL; default: live.")
    ] = None,
    cell: Cell = None,
    archive: ArchiveDir = None,
    gateway: Gateway = None,
) -> None:
    """How fast a job trains, how its memory goes up and down, how much of its GPUs it uses, when it stood still."""
    from libs.inspect.profile import profile_of

    if out is not None:
        check_picture(out)
    if log is None:
        with client(gateway) as live:
            job = id_of(live, job)
    with opened(log, cell, gateway, archive) as found:
        known = profile_of(found.control(), job)
    if known is None:
        fail(f"no job {job} on the log", NOT_FOUND)
    for name, text in described(known):
        typer.echo(f"{name:<14}{text}")
    if out is not None:
        if not known.points:
            fail(f"nothing was measured of {job} yet: there is nothing to draw", USAGE)
        write_picture(drawing(job, known), out)
        typer.echo(str(out), err=True)


def described(found: Profile) -> list[tuple[str, str]]:
    """Names and texts; what is not known is left out."""
    rows = []
    if found.rate_per_s:
        rows.append(("mini-batch", f"{1000 / found.rate_per_s:.1f} ms ({rate(found.rate_per_s)})"))
    if found.memory_peak_bytes:
        peak, least = found.memory_peak_bytes, found.memory_min_bytes
        cycle = f", {peak / least:.1f} times the least" if least else ""
        rows.append(("memory", f"{bytes_of(least)} to {bytes_of(peak)}{cycle}"))
    if found.utilisation_ratio is not None:
        rows.append(("GPU in use", f"{found.utilisation_ratio:.0%}"))
    if found.stood_still:
        ended = [still for still in found.stood_still if still.end_s is not None]
        total_s = sum((still.end_s or 0.0) - still.begin_s for still in ended)
        parked = max(still.parked_bytes for still in found.stood_still)
        delay_s = sum(still.delay_s for still in found.stood_still) / len(found.stood_still)
        times = f"{counted(len(found.stood_still), 'time')}, {duration(total_s)} in all"
        rows.append(("stood still", f"{times}; {1000 * delay_s:.0f} ms to the boundary, {bytes_of(parked)} moved"))
    return rows or [("measured", "nothing yet")]


def drawing(job: str, found: Profile) -> Drawing:
    """Memory, mini-batch time and GPU use over time, and when the job stood still (cf. Gandiva, figure 5)."""
    from libs.studies.report.drawing import Drawing
    from libs.studies.report.style import CATEGORIES, RULE, stacked, styled

    began_s = found.began_s if found.began_s is not None else found.points[0].window_start_s
    points = _with_gaps(found)
    at_s = [point.window_start_s + point.window_s - began_s if point else NOTHING for point in points]
    with styled():
        figure, (memory, pace, use) = stacked(3, height=5.6)
        low = [point.memory_min_bytes / MEBIBYTE if point else NOTHING for point in points]
        high = [point.memory_peak_bytes / MEBIBYTE if point else NOTHING for point in points]
        memory.fill_between(at_s, low, high, color=CATEGORIES[0], alpha=0.3, linewidth=0)
        dots: dict[str, Any] = {"marker": "o", "markersize": 3.5}
        memory.plot(at_s, high, color=CATEGORIES[0], label="most within a window", **dots)
        memory.plot(at_s, low, color=CATEGORIES[0], alpha=0.55, label="least, between mini-batches", **dots)
        memory.legend(loc="best")
        memory.set_ylabel("memory (MiB)")
        paces = [1000 / point.rate_per_s if point and point.rate_per_s > 0 else NOTHING for point in points]
        pace.plot(at_s, paces, color=CATEGORIES[1], **dots)
        pace.set_ylabel("mini-batch (ms)")
        ratios = [point.gpu_utilisation_ratio if point else None for point in points]
        use.plot(at_s, [NOTHING if ratio is None else 100 * ratio for ratio in ratios], color=CATEGORIES[2], **dots)
        use.set_ylabel("GPU in use (%)")
        use.set_xlabel("seconds since its start")
        for axes in (memory, pace, use):
            axes.set_ylim(bottom=0)
            for still in found.stood_still:
                end_s = still.end_s if still.end_s is not None else max(began_s + at_s[-1], still.begin_s)
                axes.axvspan(still.begin_s - began_s, end_s - began_s, color=RULE, alpha=0.7, linewidth=0, zorder=0)
    caption = "The band of memory reaches from the least between mini-batches to the most within; grey: it stood still."
    return Drawing("profile", f"Job {job}", caption, figure)


def _with_gaps(found: Profile) -> list[JobProfiled | None]:
    """The points, and None wherever the job stood still between two of them: no line crosses that."""
    points: list[JobProfiled | None] = []
    stood_still = [still.begin_s for still in found.stood_still]
    last_s = None
    for point in found.points:
        end_s = point.window_start_s + point.window_s
        if last_s is not None and any(last_s <= begin_s < end_s for begin_s in stood_still):
            points.append(None)
        points.append(point)
        last_s = end_s
    return points
