"""Staying with a sweep: its trials while they run, its end, its exit code."""

from __future__ import annotations

import time
from typing import Any

from libs.cli.context import CANCELLED, DONE, FAILED
from libs.cli.following import ASK_EVERY_S, tell
from libs.cli.listing import REDRAW_S
from libs.cli.output import Form, cells_of, console, drawn, is_terminal
from libs.cli.sweep_views import most_interesting, summary, trial_columns
from libs.client import Client
from libs.client.client import SWEEP_OVER

Row = dict[str, Any]
AROUND = 4
"""Lines of a screen that are no trials."""


def followed(cell: Client, sweep_id: str) -> Row:
    """The sweep once it has ended; until then its trials are shown: live on a terminal, else changes on stderr."""
    return _drawn_anew(cell, sweep_id) if is_terminal() else _told(cell, sweep_id)


def _told(cell: Client, sweep_id: str) -> Row:
    before = ""
    while True:
        found = cell.sweep(sweep_id)
        if found["state"] in SWEEP_OVER:
            return found
        line = f"{sweep_id} {summary(found)}"
        if line != before:
            before = line
            tell(line)
        time.sleep(ASK_EVERY_S)


def _drawn_anew(cell: Client, sweep_id: str) -> Row:
    from rich.live import Live

    with Live(console=console(), auto_refresh=False) as live:
        while True:
            found = cell.sweep(sweep_id)
            live.update(screen(found, live.console.size.height - AROUND), refresh=True)
            if found["state"] in SWEEP_OVER:
                return found
            time.sleep(REDRAW_S)


def screen(found: Row, most: int) -> Any:
    """A line about the sweep, and a table of at most so many trials.

    Args:
        found: the sweep, with its trials.
    """
    from rich.console import Group
    from rich.text import Text

    shown = most_interesting(found, max(most, 1))
    heads, cells = cells_of(shown, trial_columns(found), Form.TABLE)
    hidden = len(found["trials"]) - len(shown)
    below = [Text(f"and {hidden} more: sanjaya sweep show {found['id']}", style="dim")] if hidden else []
    return Group(Text(f"{found['name']}  {summary(found)}", style="bold"), drawn(cells, heads), *below)


def sentence(found: Row) -> str:
    """How a sweep has ended."""
    return f"{found['id']} {found['state']}: {found['message']}; {summary(found, state=False)}"


def outcome(found: Row) -> int:
    """The exit code for the end of a sweep."""
    if found["state"] == "CANCELLED":
        return CANCELLED
    return DONE if found["best_value"] is not None else FAILED
