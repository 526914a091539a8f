"""What was: jobs that have ended, and how many GPU hours were used."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from libs.cli.context import USAGE, Gateway, client, fail
from libs.cli.following import moment
from libs.cli.listing import AsJson, Limit, NoHeaders, Output, Selector, Sort, asked, listed, nearest
from libs.cli.output import Column, Form, clock, gpu_hours
from libs.cli.output import moment as shown
from libs.client.client import FINAL

Since = Annotated[str | None, typer.Option(help="A time: 2h or 7d ago, 2026-11-20, 2026-11-20T22:14:03Z.")]
Until = Annotated[str | None, typer.Option(help="Until this time, exclusive; as --since.")]


class By(StrEnum):
    """What GPU hours are summed over."""

    TENANT = "tenant"
    USER = "user"
    JOB = "job"
    GPU_TYPE = "gpu-type"


HISTORY = (
    Column("ID", lambda j: j["id"]),
    Column("NAME", lambda j: j["name"]),
    Column("TENANT", lambda j: j["tenant"]),
    Column("USER", lambda j: j["user"]),
    Column("GPUS", lambda j: str(j["gpus"])),
    Column("SUBMITTED", lambda j: shown(j["submitted_s"]), wide=True),
    Column("START", lambda j: shown(j["first_started_s"])),
    Column("END", lambda j: shown(j["finished_s"])),
    Column("WAIT", lambda j: clock(j["wait_s"])),
    Column("RUN", lambda j: clock(j["run_s"])),
    Column("GPU HOURS", lambda j: gpu_hours(j["gpu_s"])),
    Column("STATE", lambda j: j["state"]),
    Column("STATUS", lambda j: j["status"] or "–"),
    Column("EXIT", lambda j: _exit(j)),
    Column("ATTEMPTS", lambda j: str(j["attempt"]), wide=True),
    Column("FAILURE", lambda j: j["failure"] or "", wide=True),
    Column("WHY", lambda j: j["message"], wide=True),
)
_OUTCOMES = ("SUCCEEDED", "FAILED", "CANCELLED")


def _of_outcome(state: str) -> Column:
    return Column(state, lambda use: gpu_hours(use["by_state"].get(state, 0.0)))


USAGE_COLUMNS = (
    Column("JOBS", lambda use: str(use["jobs"])),
    Column("GPU HOURS", lambda use: gpu_hours(use["gpu_s"])),
    *(_of_outcome(state) for state in _OUTCOMES),
    Column("NOT ENDED", lambda use: gpu_hours(_not_ended(use))),
    Column("WAIT HOURS", lambda use: "–" if use["wait_s"] is None else gpu_hours(use["wait_s"])),
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(history)
    app.command()(usage)


def history(
    output: Output = Form.TABLE,
    as_json: AsJson = False,
    since: Since = None,
    until: Until = None,
    state: Annotated[
        list[str] | None, typer.Option(help="SUCCEEDED, FAILED, CANCELLED or REJECTED; repeat for alternatives.")
    ] = None,
    tenant: Annotated[list[str] | None, typer.Option("-q", "--tenant", help="Of this tenant; repeat.")] = None,
    user: Annotated[list[str] | None, typer.Option(help="Of this user; repeat.")] = None,
    selector: Selector = None,
    limit: Annotated[int, typer.Option(min=1, help="Most jobs to show, the newest.")] = 50,
    sort: Sort = None,
    no_headers: NoHeaders = False,
    gateway: Gateway = None,
) -> None:
    """List jobs that have ended: start, end, wait, run time, GPU hours, state, exit code.

    --since and --until are about the end of a job. WAIT is the time from submission until the job first ran, RUN from
    then to its end. EXIT is the exit code, or the signal that has ended it.
    """
    states = [_final(name.upper()) for name in state or []] or list(FINAL)
    filters = {
        "state": states,
        "tenant": tenant,
        "user": user,
        "label": selector,
        "ended_after_s": moment("--since", since) if since else None,
        "ended_before_s": moment("--until", until) if until else None,
    }
    chosen = {name: value for name, value in filters.items() if value}
    with client(gateway) as cell:
        rows = [_with_times(job) for job in cell.jobs(limit=limit, **chosen)]
    listed(lambda: rows, HISTORY, asked(output, as_json, no_headers, sort, limit))


def usage(
    by: Annotated[By, typer.Option(help="What GPU hours are summed over.")] = By.TENANT,
    output: Output = Form.TABLE,
    as_json: AsJson = False,
    since: Since = None,
    until: Until = None,
    limit: Limit = None,
    sort: Sort = None,
    no_headers: NoHeaders = False,
    gateway: Gateway = None,
) -> None:
    """GPU hours used, by what has come of them, and hours waited; the most GPU hours first.

    Counted is what lies between --since and --until, of running jobs too. A GPU that two jobs share counts for both.
    WAIT HOURS are the times from submission until jobs first ran.
    """
    since_s, until_s = moment("--since", since) if since else None, moment("--until", until) if until else None
    with client(gateway) as cell:
        rows = cell.usage(by.value, since_s=since_s, until_s=until_s)["items"]
    columns = (Column(by.value.replace("-", " ").upper(), lambda use: use["key"]), *USAGE_COLUMNS)
    if by is By.JOB:
        columns = (columns[0], Column("NAME", lambda use: use["name"]), *USAGE_COLUMNS)
    named = [{"id": row["key"], **row} for row in rows] if output is Form.NAME else rows
    listed(lambda: named, columns, asked(output, as_json, no_headers, sort, limit))


def _final(state: str) -> str:
    if state not in FINAL:
        near = nearest(state, FINAL)
        fail(f"--state {state}: " + (f"did you mean {near}?" if near else f"expected one of {', '.join(FINAL)}"), USAGE)
    return state


def _with_times(job: dict[str, Any]) -> dict[str, Any]:
    """With how long it waited and ran, in seconds; a job that never ran has waited until its end."""
    began_s, ended_s = job["first_started_s"], job["finished_s"]
    wait_s = (ended_s if began_s is None else began_s) - job["submitted_s"]
    return {**job, "wait_s": wait_s, "run_s": None if began_s is None else ended_s - began_s}


def _exit(job: dict[str, Any]) -> str:
    if job["signal"] is not None:
        return f"signal {job['signal']}"
    return "–" if job["exit_code"] is None else str(job["exit_code"])


def _not_ended(use: dict[str, Any]) -> float:
    ended: float = sum(use["by_state"].get(state, 0.0) for state in FINAL)
    gpu_s: float = use["gpu_s"]
    return gpu_s - ended
