"""The `sanjaya` command. Each group of commands is one file; what is heavy is imported when it is needed."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import typer
from typer.exceptions import TyperException

from libs.cli.context import DONE, FAILED, INTERRUPTED, USAGE, fail, speaking
from libs.cli.sections import Sections

GROUPS = {
    "submit": "submit run",
    "jobs": "jobs queue show why story stacks",
    "job_files": "ls cp",
    "following": "logs wait",
    "inside": "exec shell forward",
    "notebook": "notebook",
    "changes": "cancel pause resume set",
    "sweeps": "sweep sweeps",
    "cluster": "nodes gpus drain undrain repair-clock policy settings events",
    "tenants": "tenants tenant",
    "dead_letters": "deadletter",
    "history": "history usage",
    "failures": "failures",
    "audit": "replay diff state export",
    "coordination": "coordination",
    "interference": "interference",
    "archiving": "archive",
    "profiling": "profile",
    "data": "data",
    "rehearsing": "rehearse",
    "classifying": "classify rules",
    "analyzing": "analyze",
    "what_if": "what-if",
    "planning": "solve simulate",
    "experiment": "generate experiment",
    "reproducing": "reproduce",
    "running": "up down demo page agent doctor version",
    "settings": "config context",
}
"""{file of this room: its commands}. Only the file of the command that is called is imported."""


def app_for(arguments: Sequence[str] = ()) -> typer.Typer:
    """The application with the commands that these arguments can mean: those of one file, or all.

    Args:
        arguments: of the command line. All commands are there unless the first one names one: for help, completion
            and a word that is misspelt.
    """
    made = typer.Typer(
        name="sanjaya",
        cls=Sections,
        help="An event-sourced scheduler for deep-learning training on shared GPU clusters.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback()(options)
    called = [name for name, commands in GROUPS.items() if arguments and arguments[0] in commands.split()]
    for name in called or GROUPS:
        import_module(f"libs.cli.{name}").register(made)
    return made


def _tell_version(asked: bool) -> None:
    if asked:
        from libs.cli.running import version

        version()
        raise typer.Exit


def options(
    debug: Annotated[bool, typer.Option("--debug", help="Tracebacks (or SANJAYA_DEBUG=1).")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="The installed version.", callback=_tell_version, is_eager=True)
    ] = False,
) -> None:
    """An event-sourced scheduler for deep-learning training on shared GPU clusters."""


def main() -> None:
    """The entry point: errors are sentences; tracebacks only with `sanjaya --debug …`."""
    signal.signal(signal.SIGINT, lambda *_: sys.exit(INTERRUPTED))
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # what it cannot do is said once, by its caller
    try:
        with speaking():
            sys.exit(app_for(sys.argv[1:])(standalone_mode=False) or DONE)
    except typer.Abort:
        fail("not confirmed, nothing done", FAILED)
    except TyperException as error:
        sys.exit(_misused(error))
    except Exception as error:
        if "--debug" in sys.argv[1:2] or os.environ.get("SANJAYA_DEBUG"):
            raise
        fail(f"{type(error).__name__}: {error}", FAILED, "sanjaya --debug …")


def _misused(error: TyperException) -> int:
    """Say in one line what is wrong with the arguments; a group without a command shows its help."""
    text = str(getattr(error, "format_message", error.__str__)())
    context = getattr(error, "ctx", None)
    if "\n" in text:
        typer.echo(text, err=True)
    else:
        hint = f"{context.command_path} -h" if context is not None else "sanjaya -h"
        typer.echo(f"error: {text[:1].lower()}{text[1:].rstrip('.')}  try: {hint}", err=True)
    return int(getattr(error, "exit_code", USAGE))


if __name__ == "__main__":
    main()
