"""What guests cost the owners of their GPUs."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from libs.cli.audit import ArchiveDir, Cell, Source, opened
from libs.cli.context import Gateway
from libs.cli.following import moment
from libs.cli.history import Since
from libs.cli.listing import AsJson, Limit, NoHeaders, Output, Sort, asked, listed
from libs.cli.output import Column, Form
from libs.kernel.words import counted

TABLE = (
    Column("SLOWDOWN", lambda row: row["slowdown"]),
    Column("JOBS (PAPER'S RULE)", lambda row: str(row["by_absolute_rule"])),
    Column("JOBS (RELATIVE RULE)", lambda row: str(row["by_relative_rule"])),
)
OWNERS = (
    Column("ID", lambda job: job["job_id"]),
    Column("ALONE", lambda job: f"{job['alone_s'] * 1000:.1f} ms"),
    Column("BESIDE GUESTS", lambda job: f"{job['beside_s'] * 1000:.1f} ms"),
    Column("SLOWDOWN", lambda job: f"{job['slowed_ratio']:+.1%}"),
    Column("PAPER'S RULE", lambda job: "yes" if job["by_absolute_rule"] else "no"),
    Column("RELATIVE RULE", lambda job: "yes" if job["by_relative_rule"] else "no"),
    Column("PROFILES ALONE", lambda job: str(job["profiles_alone"]), wide=True),
    Column("PROFILES BESIDE", lambda job: str(job["profiles_beside"]), wide=True),
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(interference)


def interference(
    log: Source = None,
    since: Since = None,
    jobs: Annotated[bool, typer.Option("--jobs", help="A row per job instead of the table.")] = False,
    output: Output = Form.TABLE,
    as_json: AsJson = False,
    no_headers: NoHeaders = False,
    sort: Sort = None,
    limit: Limit = None,
    archive: ArchiveDir = None,
    gateway: Gateway = None,
    cell: Cell = None,
) -> None:
    """Jobs by how much guests on their GPUs slow them down (AntMan's table 5, for this cell or any log).

    A job counts once it has been measured alone and beside guests. The paper's rule counts a mini-batch that takes more
    than 10 ms longer than alone, the relative rule one that takes more than 3 % longer beyond the scatter.
    """
    from libs.inspect.interference import owners_of, table

    since_s = moment("--since", since) if since is not None else 0.0
    with opened(log, cell, gateway, archive) as found:
        owners = owners_of((record.envelope for record in found.control()), since_s)
    how = asked(output, as_json, no_headers, sort, limit)
    rows = owners if jobs else table(owners)
    listed(lambda: [msgspec.to_builtins(row) for row in rows], OWNERS if jobs else TABLE, how)
    if how.form in (Form.TABLE, Form.WIDE):
        typer.echo(f"{counted(len(owners), 'job')} measured alone and beside guests", err=True)
