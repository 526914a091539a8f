"""What has failed: Table 6 of the Philly study (ATC'19), for this cell."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from libs.cli.context import Gateway, client
from libs.cli.following import moment
from libs.cli.history import Since, Until
from libs.cli.listing import AsJson, Limit, NoHeaders, Output, Sort, asked, listed
from libs.cli.output import Column, Form, clock, gpu_hours

UNKNOWN = "(not known)"


class By(StrEnum):
    """What failed attempts are put together by."""

    REASON = "reason"
    CAUSE = "cause"
    USER = "user"
    TENANT = "tenant"
    NODE = "node"
    INPUT = "input"


COLUMNS = (
    Column("TRIALS", lambda row: str(row["trials"])),
    Column("JOBS", lambda row: str(row["jobs"])),
    Column("USERS", lambda row: str(row["users"])),
    Column("P50", lambda row: clock(row["p50_s"])),
    Column("P90", lambda row: clock(row["p90_s"])),
    Column("P95", lambda row: clock(row["p95_s"])),
    Column("1 GPU", lambda row: str(row["gpus_1"])),
    Column("2-4", lambda row: str(row["gpus_2_to_4"])),
    Column("> 4", lambda row: str(row["gpus_above_4"])),
    Column("GPU HOURS", lambda row: gpu_hours(row["gpu_s"])),
    Column("PART", lambda row: f"{row['part']:.1%}"),
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
    group.callback()(failures)
    group.command("release")(release)
    app.add_typer(group, name="failures")


def failures(
    context: typer.Context,
    by: Annotated[By, typer.Option(help="What failed attempts are put together by.")] = By.REASON,
    output: Output = Form.TABLE,
    as_json: AsJson = False,
    since: Since = None,
    until: Until = None,
    limit: Limit = None,
    sort: Sort = None,
    no_headers: NoHeaders = False,
    gateway: Gateway = None,
) -> None:
    """Failed attempts by reason: of how many jobs and users, how soon, on how many GPUs; the most attempts first.

    P50, P90 and P95 are of the time from an attempt's placement to its failure. PART is the part of the GPU time of all
    failed attempts.
    """
    if context.invoked_subcommand is not None:
        return
    since_s, until_s = moment("--since", since) if since else None, moment("--until", until) if until else None
    with client(gateway) as cell:
        found = cell.failures(by.value, since_s=since_s, until_s=until_s)
    whole_s = found["gpu_s"] or 1.0
    rows = [{"id": row["key"], **row, "part": row["gpu_s"] / whole_s} for row in found["items"]]
    columns = (Column(by.value.upper(), lambda row: row["key"] or UNKNOWN), *COLUMNS)
    listed(lambda: rows, columns, asked(output, as_json, no_headers, sort, limit))


def release(
    name: Annotated[str, typer.Argument(help="As jobs name it in --data.", metavar="INPUT")],
    gateway: Gateway = None,
) -> None:
    """Let jobs run again that name an input in quarantine."""
    with client(gateway) as cell:
        cell.release_input(name)
        typer.echo(f"jobs that name {name} may run again")
