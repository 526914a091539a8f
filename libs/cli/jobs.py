"""Looking at jobs."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from libs.cli.context import FAILED, USAGE, Gateway, client, fail
from libs.cli.described import description
from libs.cli.following import seconds, tell
from libs.cli.forecasts import foreseen_of, lines_of_forecast, why_on_log
from libs.cli.group_views import as_row, counts_of, described, reasons
from libs.cli.listing import AsJson, NoHeaders, Output, Selector, Sort, Watch, asked, listed
from libs.cli.output import Column, Form, age, count, epoch, loss, pace, show, show_document, show_one
from libs.cli.references import Job, either, resolve
from libs.contracts.read_models import WAITING_STATES
from libs.kernel.words import lines_of_wait

MEMBERS_SHOWN = 50
"""Jobs of an array or a DAG that `show` lists."""
COLUMNS = (
    Column("ID", lambda j: j["id"]),
    Column("NAME", lambda j: j["name"]),
    Column("TENANT", lambda j: j["tenant"]),
    Column("USER", lambda j: j["user"], wide=True),
    Column("GPUS", lambda j: gpus_of(j)),
    Column("STATE", lambda j: f"{j['state']} #{j['queue_position']}" if j["queue_position"] else j["state"]),
    Column("WHY / WHERE", lambda j: place_or_reason(j)),
    Column("STEP", lambda j: count(j["minibatches"]), runs_on=True),
    Column("RATE", lambda j: pace(j), runs_on=True),
    Column("LOSS", lambda j: loss(j), runs_on=True),
    Column("ATTEMPT", lambda j: str(j["attempt"]), wide=True),
    Column("PRIORITY", lambda j: str(j["priority"]), wide=True),
    Column("CLASS", lambda j: j["class"], wide=True),
    Column("STATUS", lambda j: j.get("status", ""), wide=True),
    Column("CONVERGED AT", lambda j: epoch(j.get("converged_epoch")), wide=True),
    Column("AGE", lambda j: age(j["submitted_s"]), runs_on=True),
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for name, hidden in (("jobs", False), ("queue", True)):
        app.command(name, hidden=hidden)(jobs)
    commands: dict[str, Callable[..., None]] = {"show": show_job, "why": why, "story": story, "stacks": stacks}
    for name, command in commands.items():
        app.command(name)(command)


def gpus_of(job: dict[str, Any]) -> str:
    """`2 v100`; of each job of an array or a DAG `100 × 2 v100`."""
    times = f"{job['jobs']} × " if "jobs" in job else ""
    return " ".join([f"{times}{job['gpus']}", ",".join(job["gpu_types"])]).strip()


def place_or_reason(job: dict[str, Any]) -> str:
    """Where it runs, or in a few words why it does not; of a paused job, whether it has its GPUs still."""
    if job.get("held"):
        return str(job["message"])
    if job["state"] in ("RUNNING", "STARTING", "SUSPENDED") and job["where"]:
        return "; ".join([job["where"], *job.get("notices", {}).values()])
    if job["state"] == "FAILED" and job.get("deciding_line"):
        return f"{job['failure']}: {job['deciding_line']}"
    return str(job["message"] if job["state"] in ("QUEUED", "SUSPENDED", "REJECTED", "FAILED") else job["reason"])


def jobs(
    array: Annotated[
        str | None, typer.Argument(help="The jobs of this array or DAG, by id or name.", metavar="[ARRAY]")
    ] = None,
    expand: Annotated[bool, typer.Option("-a", "--expand", help="Each job of arrays and DAGs in a row.")] = False,
    output: Output = Form.TABLE,
    as_json: AsJson = False,
    state: Annotated[
        list[str] | None, typer.Option(help="QUEUED, RUNNING, SUSPENDED, …; repeat for alternatives.")
    ] = None,
    tenant: Annotated[list[str] | None, typer.Option("-q", "--tenant", help="Of this tenant; repeat.")] = None,
    user: Annotated[list[str] | None, typer.Option(help="Of this user; repeat.")] = None,
    selector: Selector = None,
    since: Annotated[str | None, typer.Option(help="Submitted within 30m, 2h, 7d.")] = None,
    all_users: Annotated[bool, typer.Option("-A", "--all-users", help="Of all users, whatever --user says.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Most jobs to show, the newest.")] = 50,
    sort: Sort = None,
    no_headers: NoHeaders = False,
    watch: Watch = False,
    gateway: Gateway = None,
) -> None:
    """List jobs, newest first; an array or a DAG is one row that `jobs ARRAY` opens."""
    filters = {
        "array": array,
        "grouped": not expand and array is None,
        "state": [s.upper() for s in state or []],
        "tenant": tenant,
        "user": None if all_users else user,
        "label": selector,
        "submitted_after_s": time.time() - seconds(since) if since else None,
    }
    chosen = {name: value for name, value in filters.items() if value}
    how = asked(output, as_json, no_headers, sort, limit, watch)
    with client(gateway) as cell:
        listed(lambda: [as_row(job) for job in cell.jobs(limit=limit, **chosen)], COLUMNS, how)


def show_job(job: Job, output: Output = Form.TABLE, as_json: AsJson = False, gateway: Gateway = None) -> None:
    """Everything that is known of a job; of an array or a DAG how its jobs are."""
    form = Form.JSON if as_json else output
    with client(gateway) as cell:
        found = either(cell, job, cell.job, cell.group)
        members = list(cell.jobs(limit=MEMBERS_SHOWN, array=found["id"], order="oldest")) if "counts" in found else []

    def describe() -> None:
        if "counts" not in found:
            typer.echo("\n".join(description(found, wide=form is Form.WIDE)))
            return
        typer.echo("\n".join([*described(found, members), ""]))
        show(members, COLUMNS, form)
        if found["jobs"] > len(members):
            typer.echo(f"and {found['jobs'] - len(members)} more: sanjaya jobs {found['id']} --limit {found['jobs']}")

    show_one(found, form, describe)


def why(
    job: Job,
    log: Annotated[
        str | None,
        typer.Option("--log", metavar="LOG", help="A recorded log: exported file, archive or log.db."),
    ] = None,
    at: Annotated[int | None, typer.Option("--at", min=0, help="With --log: before the record at this offset.")] = None,
    as_json: AsJson = False,
    gateway: Gateway = None,
) -> None:
    """Why a job waits, or is where it is: the reasons on the log, and what would start one that waits."""
    if log is not None:
        why_on_log(log, job, at, as_json=as_json)
        return
    if at is not None:
        fail("--at belongs to --log; a live cell is asked about the present", USAGE)
    with client(gateway) as cell:
        found = either(cell, job, cell.why, cell.group)
        members = list(cell.jobs(array=found["id"])) if "counts" in found else []
        foreseen = foreseen_of(cell, found) if found["state"] in WAITING_STATES and "counts" not in found else None
    if as_json:
        show_document(found if foreseen is None else found | {"forecast": foreseen}, Form.JSON)
        return
    if "counts" in found:
        typer.echo("\n".join([f"{found['state']}: {counts_of(found)}", *(f"  {line}" for line in reasons(members))]))
        return
    where = f" on {found['where']}" if found["where"] and found["state"] in ("RUNNING", "STARTING") else ""
    typer.echo(f"{found['state']}{where} for {age(found['since_s'])}: {found['message']} ({found['reason']})")
    if found["deciding_line"]:
        typer.echo(f"  {found['failure']}: {found['deciding_line']}")
    for check in found["checks"]:
        typer.echo(f"  {check['check']:<17}{check['message']:<78} {check['verdict']}")
        for rejected in check["rejected"]:
            numbers = ", ".join(f"{k} {v}" for k, v in rejected.get("numbers", {}).items())
            typer.echo(f"  {'':<19}not {rejected['what']}: {rejected['code']} ({numbers})")
    for line in lines_of_wait(found["waits_s"], found["waits_for"], found["behind"]):
        typer.echo(line)
    if found["queue_position"]:
        typer.echo(f"  place in the queue: {found['queue_position']}")
    for line in lines_of_forecast(foreseen) if foreseen is not None else ():
        typer.echo(line)
    typer.echo(f"decision {found['offset']} by {found['decided_by']} · sanjaya story {found['job_id']}")


def story(job: Job, as_json: AsJson = False, gateway: Gateway = None) -> None:
    """What happened to a job, in sentences, each under its cause."""
    with client(gateway) as cell:
        told = cell.story(resolve(cell, job))
    if as_json:
        show_document(told, Form.JSON)
    else:
        typer.echo("\n".join(told["lines"]))


def stacks(
    job: Job,
    rank: Annotated[int | None, typer.Option(min=0, help="Of this rank alone; without it: of all.")] = None,
    as_json: AsJson = False,
    gateway: Gateway = None,
) -> None:
    """What the processes of a running job do just now: the stacks of their threads, the innermost call first."""
    with client(gateway) as cell:
        found = cell.stacks(resolve(cell, job), rank=rank)
    if as_json:
        show_document(found, Form.JSON)
        return
    for process in found["items"]:
        name = f"rank {process['rank']}" if process["rank"] is not None else "a process that has not trained yet"
        typer.echo(f"{name} on {process['node_id']}, pid {process['pid']}")
        typer.echo(textwrap.indent(process["text"] or process["note"], "  ") + "\n")
    for why_not in found["missing"]:
        tell(f"not shown: {why_not}")
    if not found["items"]:
        raise typer.Exit(FAILED)
