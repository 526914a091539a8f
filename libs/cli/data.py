"""Whether data is as a schema says, before a job trains on it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from libs.cli.context import FAILED, USAGE, fail
from libs.cli.listing import AsJson
from libs.contracts.agent import DataViolation
from libs.kernel.words import counted


def register(app: typer.Typer) -> None:
    """Add the commands."""
    data = typer.Typer(help="Data sets.", no_args_is_help=True, rich_markup_mode=None)
    data.callback()(_group)
    data.command("check")(check)
    app.add_typer(data, name="data")


def _group() -> None:
    """Data sets."""


def check(
    schema: Annotated[Path, typer.Argument(help="JSON Schema of a row, or an Arrow schema (IPC).")],
    paths: Annotated[list[str], typer.Argument(help="Files, folders or patterns.")],
    as_json: AsJson = False,
) -> None:
    """Compare files with a schema: CSV, JSON lines, Parquet, WebDataset shards.

    Each violation is named with file, row, column, value and expectation, 20 at most. Ends with 1 if there are any.
    """
    from libs.datasets.checking import ToolsMissing, check_files, read_schema

    try:
        report = check_files(read_schema(schema), paths)
    except ToolsMissing as error:
        fail(str(error), USAGE)
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(report)).decode())
    else:
        for violation in report.violations:
            typer.echo(sentence(violation))
        found = counted(len(report.violations), "violation") if report.violations else "as the schema says"
        rest = "" if report.complete else "; the rest was not looked at"
        typer.echo(f"{counted(report.files, 'file')}, {counted(report.rows, 'row')}: {found}{rest}", err=True)
    if report.violations:
        sys.exit(FAILED)


def sentence(violation: DataViolation) -> str:
    """`train.csv, row 7, column age: '-3'; expected 0 or more`."""
    row = f", row {violation.row}" if violation.row is not None else ""
    column = f", column {violation.column}" if violation.column else ""
    return f"{violation.file}{row}{column}: {violation.value}; expected {violation.expected}"
