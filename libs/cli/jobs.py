"""Looking at jobs and changing them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from libs.cli.context import NOT_FOUND, USAGE, Gateway, client, fail
from libs.cli.output import Column, Form, age, count, is_terminal, loss, one, rate, show, show_document
from libs.cli.submit import exit_code, wait_for
from libs.client import Client

Job = Annotated[str, typer.Argument(help="Id, the beginning of one, a name, or `last`.")]
Output = Annotated[Form, typer.Option("-o", "--output")]
AsJson = Annotated[bool, typer.Option("--json")]
REDRAW_S = 1.0

COLUMNS = (
    Column("ID", lambda j: j["id"]),
    Column("NAME", lambda j: j["name"]),
    Column("TENANT", lambda j: j["tenant"]),
    Column("USER", lambda j: j["user"], wide=True),
    Column("GPUS", lambda j: " ".join([str(j["gpus"]), ",".join(j["gpu_types"])]).strip()),
    Column("STATE", lambda j: f"{j['state']} #{j['queue_position']}" if j["queue_position"] else j["state"]),
    Column("WHY / WHERE", lambda j: place_or_reason(j)),
    Column("STEP", lambda j: count(j["minibatches"])),
    Column("RATE", lambda j: rate(j["rate_per_s"])),
    Column("LOSS", lambda j: loss(j["loss"])),
    Column("ATTEMPT", lambda j: str(j["attempt"]), wide=True),
    Column("PRIORITY", lambda j: str(j["priority"]), wide=True),
    Column("CLASS", lambda j: j["class"], wide=True),
    Column("AGE", lambda j: age(j["submitted_s"])),
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for name, hidden in (("jobs", False), ("ls", True), ("queue", True)):
        app.command(name, hidden=hidden)(jobs)
    commands: dict[str, Callable[..., None]] = {
        "show": show_job,
        "why": why,
        "story": story,
        "logs": logs,
        "cancel": cancel,
        "pause": pause,
        "resume": resume,
        "set": change,
        "wait": wait,
    }
    for name, command in commands.items():
        app.command(name)(command)


def place_or_reason(job: dict[str, Any]) -> str:
    """Where it runs, or in a few words why it does not."""
    if job["state"] in ("RUNNING", "STARTING", "SUSPENDED"):
        return str(job["where"])
    if job["state"] == "FAILED" and job.get("deciding_line"):
        return f"{job['failure']}: {job['deciding_line']}"
    return str(job["message"] if job["state"] in ("QUEUED", "REJECTED", "FAILED") else job["reason"])


def jobs(
    output: Output = Form.TABLE,
    as_json: AsJson = False,
    state: Annotated[list[str] | None, typer.Option(help="Repeat for alternatives.")] = None,
    tenant: Annotated[list[str] | None, typer.Option("-q", "--tenant")] = None,
    user: Annotated[list[str] | None, typer.Option()] = None,
    selector: Annotated[list[str] | None, typer.Option("-l", "--selector", help="label=value")] = None,
    since: Annotated[str | None, typer.Option(help="Submitted within 30m, 2h, 7d.")] = None,
    limit: Annotated[int, typer.Option(min=1)] = 50,
    sort: Annotated[str | None, typer.Option(help="A field of the JSON form.")] = None,
    no_headers: Annotated[bool, typer.Option("--no-headers")] = False,
    watch: Annotated[bool, typer.Option("-w", "--watch")] = False,
    gateway: Gateway = None,
) -> None:
    """List jobs, newest first."""
    filters = {
        "state": [s.upper() for s in state or []] or None,
        "tenant": tenant,
        "user": user,
        "label": selector,
        "submitted_after_s": time.time() - seconds(since) if since else None,
    }
    filters = {name: value for name, value in filters.items() if value}
    form = Form.JSON if as_json else output
    with client(gateway) as cell:
        while True:
            rows = _first(cell, filters, limit)
            if sort:
                if rows and sort not in rows[0]:
                    fail(f"no field {sort!r} to sort by; there are {', '.join(rows[0])}", USAGE)
                rows.sort(key=lambda row: (row[sort] is None, row[sort]))
            if watch and is_terminal():
                typer.echo("\x1b[H\x1b[2J", nl=False)
            show(rows, COLUMNS, form, headers=not no_headers)
            if not watch:
                return
            time.sleep(REDRAW_S)


def _first(cell: Client, filters: dict[str, Any], limit: int) -> list[dict[str, Any]]:
    rows = []
    for row in cell.jobs(**filters):
        rows.append(row)
        if len(rows) == limit:
            break
    return rows


def resolve(cell: Client, job: str) -> str:
    """`last` is the newest job; everything else the gateway resolves."""
    if job != "last":
        return job
    newest = next(cell.jobs(), None)
    if newest is None:
        fail("there are no jobs yet", NOT_FOUND, "sanjaya submit -- python train.py")
    return str(newest["id"])


def show_job(job: Job, output: Output = Form.YAML, as_json: AsJson = False, gateway: Gateway = None) -> None:
    """Everything that is known of a job."""
    with client(gateway) as cell:
        show_document(cell.job(resolve(cell, job)), Form.JSON if as_json else output)


def why(job: Job, as_json: AsJson = False, gateway: Gateway = None) -> None:
    """Why a job waits, or is where it is: the reasons that stand on the log."""
    with client(gateway) as cell:
        found = cell.why(resolve(cell, job))
    if as_json:
        show_document(found, Form.JSON)
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
    if found["queue_position"]:
        typer.echo(f"  place in the queue: {found['queue_position']}")
    typer.echo(f"decision {found['offset']} by {found['decided_by']} · sanjaya story {found['job_id']}")


def story(job: Job, as_json: AsJson = False, gateway: Gateway = None) -> None:
    """What happened to a job, in sentences, each under its cause."""
    with client(gateway) as cell:
        told = cell.story(resolve(cell, job))
    if as_json:
        show_document(told, Form.JSON)
    else:
        typer.echo("\n".join(told["lines"]))


def logs(
    job: Job,
    follow: Annotated[bool, typer.Option("-f", "--follow")] = False,
    tail: Annotated[int | None, typer.Option(help="The last lines only.")] = None,
    since: Annotated[str | None, typer.Option(help="Of the last 30s, 10m, 2h.")] = None,
    rank: Annotated[int | None, typer.Option()] = None,
    pass_on: Annotated[bool, typer.Option("--exit-code", help="With -f: end with the job's exit code.")] = False,
    gateway: Gateway = None,
) -> None:
    """A job's output."""
    with client(gateway) as cell:
        job_id = resolve(cell, job)
        since_s = time.time() - seconds(since) if since else None
        for line in cell.log_lines(job_id, follow=follow, tail=tail, since_s=since_s, rank=rank):
            print(line["text"], file=sys.stderr if line["stream"] == "stderr" else sys.stdout, flush=True)
        if follow and pass_on:
            sys.exit(exit_code(wait_for(cell, job_id)))


def cancel(
    jobs: Annotated[list[str] | None, typer.Argument(help="Ids or names.")] = None,
    selector: Annotated[list[str] | None, typer.Option("-l", "--selector", help="label=value")] = None,
    grace: Annotated[str, typer.Option(help="Time between SIGTERM and SIGKILL.")] = "10s",
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
    gateway: Gateway = None,
) -> None:
    """End jobs."""
    with client(gateway) as cell:
        chosen = [resolve(cell, job) for job in jobs or []]
        if selector:
            waiting = cell.jobs(label=selector, state=["QUEUED", "STARTING", "RUNNING", "SUSPENDED", "MIGRATING"])
            chosen += [job["id"] for job in waiting]
        if not chosen:
            fail("no job to cancel", USAGE, "sanjaya cancel JOB, or -l label=value")
        if len(chosen) > 1 and not yes and is_terminal():
            typer.confirm(f"cancel {len(chosen)} jobs?", abort=True)
        for job in chosen:
            typer.echo(f"{cell.cancel(job, grace_s=seconds(grace))['id']} is asked to end")


def pause(job: Job, gateway: Gateway = None) -> None:
    """Hold a job: a waiting one is not placed, a running one is suspended."""
    with client(gateway) as cell:
        typer.echo(f"{cell.pause(resolve(cell, job))['id']} is held")


def resume(job: Job, gateway: Gateway = None) -> None:
    """Let a held job go on."""
    with client(gateway) as cell:
        typer.echo(f"{cell.resume(resolve(cell, job))['id']} goes on")


def change(
    job: Job,
    priority: Annotated[int, typer.Option(help="Higher goes first.")],
    gateway: Gateway = None,
) -> None:
    """Change a job."""
    with client(gateway) as cell:
        one(cell.set_priority(resolve(cell, job), priority), Form.NAME)


def wait(
    job: Job,
    timeout: Annotated[float | None, typer.Option(help="Seconds; then exit code 124.")] = None,
    pass_on: Annotated[bool, typer.Option("--exit-code", help="End with the job's exit code.")] = False,
    gateway: Gateway = None,
) -> None:
    """Wait until a job has ended."""
    with client(gateway) as cell:
        ended = wait_for(cell, resolve(cell, job), timeout)
        typer.echo(f"{ended['id']} {ended['state']}: {ended['message']}")
        if pass_on or ended["state"] != "SUCCEEDED":
            sys.exit(exit_code(ended) if pass_on else 1)


def seconds(text: str) -> float:
    """`30s`, `10m`, `2h`, `7d`, or a number of seconds; ends the process with 2 when it is none of these."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    number, unit = (text[:-1], text[-1]) if text and text[-1] in units else (text, "s")
    try:
        return float(number) * units[unit]
    except ValueError:
        fail(f"{text!r} is no time", USAGE, "30s, 10m, 2h or 7d")
