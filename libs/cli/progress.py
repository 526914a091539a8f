"""Bars and counters on stderr while a person watches; silence otherwise."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from libs.cli.output import is_terminal

Watch = Callable[[int, int | None], None]
"""Told how much is done, and of how much; None: unknown."""


@contextmanager
def progress(what: str) -> Iterator[Watch]:
    """A bar that vanishes at the end."""
    if not (is_terminal() and sys.stderr.isatty()):
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description} {task.completed:,}"),
        BarColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
