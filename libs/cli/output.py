"""Tables for people, tab-separated lines for pipes, JSON and YAML for programs."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table as RichTable

Row = dict[str, Any]


class Form(StrEnum):
    """Output forms."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    NAME = "name"


@dataclass(frozen=True)
class Column:
    """One column: its head, and the cell of a row."""

    head: str
    cell: Callable[[Row], str]
    wide: bool = False
    """Shown with `-o wide` only."""
    runs_on: bool = False
    """Changes by itself all the time, which is no news."""


def show(rows: Sequence[Row], columns: Sequence[Column], form: Form, *, headers: bool = True) -> None:
    """Print rows in the asked-for form."""
    if form is Form.JSON:
        typer.echo(json.dumps(list(rows), indent=2))
    elif form is Form.YAML:
        import yaml

        typer.echo(yaml.safe_dump(list(rows), sort_keys=False), nl=False)
    elif form is Form.NAME:
        for row in rows:
            typer.echo(row.get("id") or row.get("name"))
    else:
        heads, cells = cells_of(rows, columns, form)
        if form is Form.CSV:
            _comma_separated([heads, *cells] if headers else cells)
        else:
            table(cells, heads if headers else None)


def show_one(found: Row, form: Form, describe: Callable[[], None]) -> None:
    """Print one thing in the asked-for form; `describe` prints it for people."""
    if form is Form.NAME:
        typer.echo(found["id"])
    elif form in (Form.JSON, Form.YAML):
        show_document(found, form)
    else:
        describe()


def cells_of(rows: Sequence[Row], columns: Sequence[Column], form: Form) -> tuple[list[str], list[list[str]]]:
    """The heads and the cells that a form shows."""
    shown = [column for column in columns if form in (Form.WIDE, Form.CSV) or not column.wide]
    return [column.head for column in shown], [[column.cell(row) for column in shown] for row in rows]


def table(cells: Sequence[Sequence[str]], heads: Sequence[str] | None) -> None:
    """Aligned on a terminal, tab-separated in a pipe."""
    if is_terminal():
        console().print(drawn(cells, heads))
        return
    for line in ([heads] if heads else []) + list(cells):
        tab_separated(line or ())


def tab_separated(line: Sequence[str]) -> None:
    """One line for a program: what would end a cell or the line is made a space."""
    print("\t".join(" ".join(cell.split()) for cell in line), flush=True)


def _comma_separated(lines: Sequence[Sequence[str]]) -> None:
    """For a spreadsheet: every column, quoted where a cell needs it (RFC 4180)."""
    import csv

    csv.writer(sys.stdout).writerows(lines)


def drawn(cells: Sequence[Sequence[str]], heads: Sequence[str] | None) -> RichTable:
    """Aligned, with states in their colours."""
    from rich.table import Table

    made = Table(box=None, show_header=heads is not None, pad_edge=False, header_style="bold")
    for place in range(len(heads) if heads else len(cells[0]) if cells else 0):
        made.add_column(heads[place] if heads else "", overflow="fold", no_wrap=place == 0)
    for line in cells:
        made.add_row(*(styled(text) for text in line))
    return made


def show_document(document: Any, form: Form) -> None:
    """Print any document as JSON or YAML."""
    if form is Form.YAML:
        import yaml

        typer.echo(yaml.safe_dump(document, sort_keys=False), nl=False)
    else:
        typer.echo(json.dumps(document, indent=2))


STATE_STYLES = {
    "RUNNING": "green",
    "SUCCEEDED": "green",
    "FAILED": "red",
    "REJECTED": "red",
    "QUEUED": "yellow",
    "SUSPENDED": "yellow",
    "STARTING": "cyan",
    "STOPPING": "cyan",
    "MIGRATING": "cyan",
    "CANCELLED": "dim",
    "COMPLETED": "green",
    "TARGET_REACHED": "green",
    "EXHAUSTED": "green",
    "PRUNED": "dim",
    "STOPPED": "dim",
    "UP": "green",
    "LOST": "red",
}


def styled(text: str) -> str:
    """A state in its colour; everything else as it is, with brackets escaped."""
    from rich.markup import escape

    word = text.split(" ")[0]
    style = STATE_STYLES.get(word)
    return f"[{style}]{escape(text)}[/{style}]" if style else escape(text)


def console() -> Any:
    """Rich on stdout; NO_COLOR and CLICOLOR_FORCE are respected."""
    from rich.console import Console

    return Console(force_terminal=True if os.environ.get("CLICOLOR_FORCE") not in (None, "", "0") else None)


def is_terminal() -> bool:
    """Whether a person reads stdout."""
    return sys.stdout.isatty() or os.environ.get("CLICOLOR_FORCE") not in (None, "", "0")


def age(since_s: float | None) -> str:
    """`40m`, `2h`, `3d` since a time."""
    return "–" if since_s is None else duration(max(0.0, time.time() - since_s))


def duration(seconds: float) -> str:
    """The largest whole unit."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def clock(seconds: float | None) -> str:
    """`1:05:09`, or `2-01:05:09` with days, as Slurm writes them."""
    if seconds is None:
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    days, hours = divmod(minutes // 60, 24)
    return f"{f'{days}-{hours:02}' if days else hours}:{minutes % 60:02}:{rest:02}"


def moment(time_s: float | None) -> str:
    """`2026-11-20T22:14:03` in local time."""
    return "–" if time_s is None else time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time_s))


def gpu_hours(gpu_s: float) -> str:
    """GPU seconds as hours with two decimals."""
    return f"{gpu_s / 3600:.2f}"


def count(number: float | None) -> str:
    """`41k` for 41,000."""
    if number is None:
        return "–"
    return f"{number / 1000:.0f}k" if number >= 10_000 else f"{number:g}"


def rate(per_s: float | None) -> str:
    """`8.2/s`."""
    return "–" if per_s is None else f"{per_s:.1f}/s" if per_s < 100 else f"{per_s:.0f}/s"


QUIET_S, QUIET_MINIBATCHES = 30.0, 8.0
"""A rate is living until so many seconds after the last measured time, or so many mini-batches at that rate."""


def pace(job: Row) -> str:
    """The job's rate; when it runs and its last mini-batch is long ago: how long."""
    per_s, until_s = job["rate_per_s"], job.get("measured_until_s")
    if job["state"] != "RUNNING" or not per_s or until_s is None:
        return rate(per_s)
    quiet_s = time.time() - until_s
    if quiet_s <= max(QUIET_S, QUIET_MINIBATCHES / per_s):
        return rate(per_s)
    ago = f"{quiet_s:.0f} s" if quiet_s < 60 else f"{quiet_s / 60:.0f} min" if quiet_s < 7200 else duration(quiet_s)
    return f"last mini-batch {ago} ago"


def epoch(number: float | None) -> str:
    """`epoch 12`; empty for none."""
    return "" if number is None else f"epoch {number:g}"


def loss(job: Row) -> str:
    """The job's loss with four significant digits, or `nan`, `inf`, `-inf`."""
    value = job["loss"]
    return job.get("loss_nonfinite") or "–" if value is None else f"{value:.4g}"
