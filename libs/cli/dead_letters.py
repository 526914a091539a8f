"""Records that services could not take: `deadletter ls`, `show`, `retry`."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from libs.cli.context import FAILED, Gateway, client, refused
from libs.cli.listing import AsJson, NoHeaders, Output, Sort, asked, listed
from libs.cli.output import Column, Form, moment, show_one
from libs.client import ApiError

COLUMNS = (
    Column("ID", lambda letter: str(letter["offset"])),
    Column("TIME", lambda letter: moment(letter["time_s"])),
    Column("SERVICE", lambda letter: letter["service"]),
    Column("RECORD", lambda letter: letter["record"]),
    Column("TYPE", lambda letter: letter["type"]),
    Column("ABOUT", lambda letter: letter["subject"]),
    Column("ERROR", lambda letter: letter["error"]),
)
Offset = Annotated[int, typer.Argument(min=0, help="As `sanjaya deadletter ls` lists it.", metavar="ID")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Records that services could not take.", no_args_is_help=True, rich_markup_mode=None)
    group.command("ls")(list_letters)
    group.command("show")(show_letter)
    group.command("retry")(retry)
    app.add_typer(group, name="deadletter")


def list_letters(
    output: Output = Form.TABLE,
    as_json: AsJson = False,
    no_headers: NoHeaders = False,
    sort: Sort = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="Most to show, the newest.")] = 100,
    gateway: Gateway = None,
) -> None:
    """List records that a service could not take, the newest first."""
    with client(gateway) as cell:
        rows = [{"id": str(letter["offset"]), **letter} for letter in cell.dead_letters(limit=limit)["items"]]
    listed(lambda: rows, COLUMNS, asked(output, as_json, no_headers, sort, limit))


def show_letter(letter: Offset, output: Output = Form.TABLE, as_json: AsJson = False, gateway: Gateway = None) -> None:
    """A record that a service could not take: why, its headers, its content."""
    with client(gateway) as cell:
        found = cell.dead_letter(letter)
    row = {"id": str(found["offset"]), **found}
    show_one(row, Form.JSON if as_json else output, lambda: typer.echo("\n".join(_described(found))))


def retry(
    letters: Annotated[
        list[int], typer.Argument(min=0, help="As `sanjaya deadletter ls` lists them.", metavar="ID...")
    ],
    gateway: Gateway = None,
) -> None:
    """Give records once more to the service that could not read them, for example after its upgrade.

    A record is retried once. Records of control are not: a service has read them, and they were impossible in its
    state, while all other services have taken them. Their story tells why: sanjaya story JOB.
    """
    failed = False
    with client(gateway) as cell:
        for letter in letters:
            try:
                done = cell.retry_dead_letter(letter)
            except ApiError as error:
                refused(error)
                failed = True
                continue
            again = "is given once more" if done["event"] else "was given once more before"
            typer.echo(f"{letter}: the record {done['id']} {again}")
    if failed:
        sys.exit(FAILED)


def _described(letter: dict[str, Any]) -> list[str]:
    fields = [
        ("record", f"{letter['record']}  {letter['type']}"),
        ("service", letter["service"]),
        ("put aside", moment(letter["time_s"])),
        ("about", letter["subject"]),
        ("error", letter["error"]),
        (
            "retry",
            f"sanjaya deadletter retry {letter['offset']}" if letter["retryable"] else f"no: {letter['why_not']}",
        ),
        *((name, value) for name, value in letter["headers"].items() if not name.startswith("x-")),
    ]
    width = max(len(name) for name, _ in fields)
    return [*(f"{name:<{width}}  {text}" for name, text in fields), "", letter["value"]]
