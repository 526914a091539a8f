"""What the demonstration shows while it runs, and at its end."""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from libs.cli.jobs import place_or_reason
from libs.cli.output import STATE_STYLES, count, loss, pace
from libs.client.client import FINAL
from libs.kernel.words import counted

TENANT_STYLES = ("black on green", "black on cyan", "black on magenta", "black on yellow")


def screen(jobs: list[dict[str, Any]], gpus: list[dict[str, Any]], elapsed_s: float, news: list[str]) -> Group:
    """Jobs, GPUs, progress, and what the supervisor has said last."""
    tenants = sorted({job["tenant"] for job in jobs})
    styles = {tenant: TENANT_STYLES[i % len(TENANT_STYLES)] for i, tenant in enumerate(tenants)}
    names = {job["id"]: job["name"] for job in jobs}
    done = sum(job["state"] in FINAL for job in jobs)
    bar = Table.grid(padding=(0, 1))
    bar.add_row(
        ProgressBar(total=max(1, len(jobs)), completed=done, width=40), f"{done}/{len(jobs)} jobs", f"{elapsed_s:.0f} s"
    )
    parts: list[Any] = [_jobs(jobs), Panel(_gpus(gpus, names, styles), title="GPUs", title_align="left"), bar]
    return Group(*parts, *(Text(text, style="dim") for text in news[-3:]))


def _jobs(jobs: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("JOB", "TENANT", "GPUS", "STATE", "WHERE / WHY", "STEP", "RATE", "LOSS"):
        table.add_column(
            head,
            no_wrap=head != "WHERE / WHY",
            max_width=52,
            justify="right" if head in ("STEP", "RATE", "LOSS") else "left",
        )
    for job in jobs:
        state = Text(job["state"], style=STATE_STYLES.get(job["state"], ""))
        numbers = (count(job["minibatches"]), pace(job), loss(job))
        where = Text(place_or_reason(job), no_wrap=True, overflow="ellipsis")
        table.add_row(job["name"], job["tenant"], str(job["gpus"]), state, where, *numbers)
    return table


def _gpus(gpus: list[dict[str, Any]], names: dict[str, str], styles: dict[str, str]) -> Table:
    """A strip of cells per node, in the tenant's colour."""
    table = Table.grid(padding=(0, 1))
    for node in sorted({gpu["node_id"] for gpu in gpus}):
        cells = [Text(node, style="bold")]
        for gpu in gpus:
            if gpu["node_id"] == node:
                name = names.get(gpu["job_id"] or "", "")
                cells.append(Text(f"{name or '·':^17.17}", style=styles.get(gpu["tenant"] or "", "dim")))
        table.add_row(*cells)
    return table


def summary(jobs: list[dict[str, Any]], elapsed_s: float) -> Table:
    """What became of each job, `elapsed_s` after they were submitted.

    Whole on a terminal of 80 columns, which is also what a pipe gets.
    """
    table = Table(
        title=f"{counted(len(jobs), 'job')} in {elapsed_s:.0f} s",
        title_justify="left",
        box=None,
        pad_edge=False,
        collapse_padding=True,
        header_style="bold",
    )
    for head in ("JOB", "TENANT", "STATE", "ATTEMPT", "WHERE"):
        table.add_column(head, no_wrap=head != "WHERE")
    for head in ("WAITED", "RAN", "STEP", "LOSS"):
        table.add_column(head, no_wrap=True, justify="right")
    for job in jobs:
        table.add_row(
            job["name"],
            job["tenant"],
            Text(job["state"], style=STATE_STYLES[job["state"]]),
            str(job["attempt"]),
            job["where"],
            _seconds(job["submitted_s"], job["first_started_s"]),
            _seconds(job["started_s"], job["finished_s"]),
            count(job["minibatches"]),
            loss(job),
        )
    return table


def _seconds(begin_s: float | None, end_s: float | None) -> str:
    return "–" if begin_s is None or end_s is None else f"{end_s - begin_s:.0f} s"
