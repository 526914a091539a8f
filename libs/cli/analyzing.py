"""`sanjaya analyze`: the Philly study of any log or trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from libs.cli.audit import ArchiveDir, Cell, opened
from libs.cli.listing import AsJson, Limit, NoHeaders, Output, Sort, asked, listed
from libs.cli.output import Column, Form
from libs.contracts.bad_input import BadInput

if TYPE_CHECKING:
    from libs.studies.philly.observed import Observed

COLUMNS = (
    Column("WHERE", lambda row: row["where"]),
    Column("ROW", lambda row: row["row"]),
    Column("COLUMN", lambda row: row["column"]),
    Column("VALUE", lambda row: row["shown"]),
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(analyze)


def analyze(
    source: Annotated[
        str,
        typer.Argument(
            metavar="LOG|TRACE",
            help="An exported file, an archive, a log.db or a bus URL, - for a log on standard input; or a CSV trace.",
        ),
    ],
    out: Annotated[
        str | None, typer.Option(help="Also a page with plots: one HTML file that needs nothing else.")
    ] = None,
    cell: Cell = None,
    archive: ArchiveDir = None,
    output: Output = Form.TABLE,
    as_json: AsJson = False,
    no_headers: NoHeaders = False,
    sort: Sort = None,
    limit: Limit = None,
) -> None:
    """The Philly study of a log or a trace: waits, utilisation, ends, failures, convergence; and what is missing."""
    from libs.cli.writing import check_writable, write_text
    from libs.studies.philly.study import lines, report, study, summary
    from libs.studies.report.page import page

    if out is not None:
        check_writable(out)
    observed = _observed(source, cell, archive)
    findings = study(observed)
    rows = lines(findings)
    listed(lambda: rows, COLUMNS, asked(output, as_json, no_headers, sort, limit))
    typer.echo(summary(observed, findings), err=True)
    if out is not None:
        write_text(page(report(observed, findings, f"sanjaya analyze {source} --out {out}")), out)
        typer.echo(out, err=True)


def _observed(source: str, cell: str | None, archive: Path | None) -> Observed:
    from libs.studies.philly.from_log import observed_log
    from libs.studies.philly.from_trace import observed_trace

    if is_trace(source):
        from libs.sim.traces import read_trace

        return observed_trace(read_trace(source), Path(source).name)
    with opened(source, cell, None, archive) as log:
        return observed_log(log, source if "://" in source else Path(source).name)


def is_trace(source: str) -> bool:
    """Whether a file is a trace: its name says so, or its first line is the header of one.

    Raises:
        BadInput: the file cannot be read.
    """
    path = Path(source)
    if path.suffix == ".csv":
        return True
    if source == "-" or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return b"submit_time_s" in file.readline(4096).partition(b"{")[0]
    except OSError as error:
        raise BadInput(source, error.strerror or str(error), "a log or a trace that can be read") from None
