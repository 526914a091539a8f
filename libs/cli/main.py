"""The `sanjaya` command. Each group of commands is one file; what is heavy is imported when it is needed."""

from __future__ import annotations

import os
import signal
import sys

import typer

from libs.cli import audit, cluster, jobs, running, submit
from libs.cli.context import FAILED, INTERRUPTED, speaking

app = typer.Typer(
    name="sanjaya",
    help="An event-sourced scheduler for deep-learning training on shared GPU clusters.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for group in (submit, jobs, cluster, audit, running):
    group.register(app)


def main() -> None:
    """The entry point: errors are sentences; tracebacks only with `sanjaya --debug …`."""
    signal.signal(signal.SIGINT, lambda *_: sys.exit(INTERRUPTED))
    arguments = sys.argv[1:]
    debug = arguments[:1] == ["--debug"] or bool(os.environ.get("SANJAYA_DEBUG"))
    try:
        with speaking():
            app(arguments[1:] if arguments[:1] == ["--debug"] else arguments)
    except Exception as error:
        if debug:
            raise
        typer.echo(f"error: {type(error).__name__}: {error}  try: sanjaya --debug …", err=True)
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
