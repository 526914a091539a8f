"""Listings: which rows, in which order and form, once or again and again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any

import typer

from libs.cli.context import USAGE, fail
from libs.cli.output import Column, Form, Row, cells_of, console, drawn, is_terminal, show, tab_separated

Output = Annotated[Form, typer.Option("-o", "--output", help="Form of the output.")]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
NoHeaders = Annotated[bool, typer.Option("--no-headers", help="Without the names of the columns.")]
Sort = Annotated[str | None, typer.Option(help="By a field of the JSON form; -FIELD: falling.", metavar="FIELD")]
Limit = Annotated[int | None, typer.Option(min=1, help="Most rows to show.")]
Selector = Annotated[list[str] | None, typer.Option("-l", "--selector", help="With this label, NAME=VALUE; repeat.")]
Watch = Annotated[
    bool, typer.Option("-w", "--watch", help="Show it again and again; in a pipe, only what has changed.")
]

REDRAW_S = 1.0
Fetch = Callable[[], Sequence[Row]]


@dataclass(frozen=True)
class Listing:
    """How rows are shown."""

    form: Form = Form.TABLE
    headers: bool = True
    sort: str | None = None
    limit: int | None = None
    watch: bool = False


def asked(
    output: Form, as_json: bool, no_headers: bool, sort: str | None, limit: int | None, watch: bool = False
) -> Listing:
    """What the flags say."""
    return Listing(Form.JSON if as_json else output, not no_headers, sort, limit, watch)


def listed(fetch: Fetch, columns: Sequence[Column], how: Listing) -> None:
    """Show the rows; with `watch` until the user interrupts."""
    if not how.watch:
        show(arranged(fetch(), how), columns, how.form, headers=how.headers)
    elif is_terminal() and how.form in (Form.TABLE, Form.WIDE):
        _redrawn(fetch, columns, how)
    else:
        _appended(fetch, columns, how)


def arranged(rows: Sequence[Row], how: Listing) -> list[Row]:
    """Sorted and cut; ends the process with 2 when there is no such field."""
    chosen = list(rows)
    if how.sort:
        field = how.sort.removeprefix("-")
        if chosen and field not in chosen[0]:
            near = nearest(field, chosen[0])
            meant = f" (did you mean {near!r}?)" if near else ""
            fail(f"no field {field!r} to sort by{meant}; there are {', '.join(chosen[0])}", USAGE)
        known = [row for row in chosen if row[field] is not None]
        unknown = [row for row in chosen if row[field] is None]
        known.sort(key=lambda row: _comparable(row[field]), reverse=how.sort.startswith("-"))
        chosen = known + unknown
    return chosen[: how.limit]


def _comparable(value: Any) -> Any:
    return value if isinstance(value, int | float) else str(value)


def _redrawn(fetch: Fetch, columns: Sequence[Column], how: Listing) -> None:
    from rich.live import Live

    with Live(console=console(), auto_refresh=False) as live:
        while True:
            heads, cells = cells_of(arranged(fetch(), how), columns, how.form)
            live.update(drawn(cells, heads if how.headers else None), refresh=True)
            time.sleep(REDRAW_S)


def _appended(fetch: Fetch, columns: Sequence[Column], how: Listing) -> None:
    """A line for each row that is new or has changed; numbers that only run on are no change."""
    told: dict[str, list[str]] = {}
    steady = [column for column in columns if not column.runs_on]
    if how.headers and how.form in (Form.TABLE, Form.WIDE):
        tab_separated(cells_of([], columns, how.form)[0])
    elif how.headers and how.form is Form.CSV:
        show([], columns, how.form)
    while True:
        for row in arranged(fetch(), how):
            name, now = str(row.get("id") or row.get("name")), [column.cell(row) for column in steady]
            if told.get(name) != now:
                told[name] = now
                _append(row, columns, how.form)
        time.sleep(REDRAW_S)


def _append(row: Row, columns: Sequence[Column], form: Form) -> None:
    if form is Form.JSON:
        print(json.dumps(row), flush=True)
    elif form in (Form.TABLE, Form.WIDE):
        tab_separated(cells_of([row], columns, form)[1][0])
    else:
        show([row], columns, form, headers=False)


def nearest(name: str, known: Sequence[str] | dict[str, Any]) -> str | None:
    """What was probably meant."""
    return next(iter(get_close_matches(name, list(known), n=1)), None)
