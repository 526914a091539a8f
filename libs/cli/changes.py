"""Changing jobs, arrays and DAGs: cancel, pause, resume, set."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from libs.cli.context import FAILED, USAGE, Gateway, client, fail, refused
from libs.cli.following import seconds
from libs.cli.output import is_terminal
from libs.cli.references import AnyJobs, Job, SomeJobs, either
from libs.client import ApiError, Client

ALIVE = ("QUEUED", "STARTING", "RUNNING", "SUSPENDED", "MIGRATING")
"""States in which a job can be asked to end."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (cancel, pause, resume):
        app.command()(command)
    app.command("set")(change)


def cancel(
    jobs: AnyJobs = None,
    selector: Annotated[
        list[str] | None, typer.Option("-l", "--selector", help="All with this label, NAME=VALUE; repeat.")
    ] = None,
    grace: Annotated[str, typer.Option(help="Time between SIGTERM and SIGKILL.")] = "10s",
    note: Annotated[str, typer.Option(help="Goes on the log.")] = "",
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
    gateway: Gateway = None,
) -> None:
    """End jobs; of an array or a DAG all of its jobs."""
    grace_s = seconds(grace)
    with client(gateway) as cell:
        chosen = list(jobs or [])
        if selector:
            chosen += [job["id"] for job in cell.jobs(label=selector, state=list(ALIVE))]
        if not chosen and not selector:
            fail("no job to cancel", USAGE, "sanjaya cancel JOB, or -l label=value")
        if len(chosen) > 1 and not yes and is_terminal() and sys.stdin.isatty():
            typer.confirm(f"cancel {len(chosen)} jobs?", abort=True)
        _each(
            cell,
            chosen,
            "is asked to end",
            lambda job: cell.cancel(job, grace_s=grace_s, note=note),
            lambda group: cell.cancel_group(group, grace_s=grace_s, note=note),
        )


def pause(jobs: SomeJobs, gateway: Gateway = None) -> None:
    """Pause jobs: a waiting one is not placed, a running one is suspended and gives its GPUs to others.

    A job keeps its GPUs while its memory cannot be brought to the host; `sanjaya why JOB` says so.
    """
    with client(gateway) as cell:
        _each(cell, jobs, "is asked to pause", cell.pause, cell.pause_group)


def resume(jobs: SomeJobs, gateway: Gateway = None) -> None:
    """Let paused jobs go on, in their turn: a suspended one where its memory is, as soon as GPUs are free there."""
    with client(gateway) as cell:
        _each(cell, jobs, "goes on in its turn", cell.resume, cell.resume_group)


def change(
    job: Job,
    priority: Annotated[int, typer.Option(help="Higher goes first.")],
    gateway: Gateway = None,
) -> None:
    """Change the priority of a job; of an array or a DAG that of all of its jobs."""
    with client(gateway) as cell:
        changed = either(
            cell,
            job,
            lambda one: cell.set_priority(one, priority),
            lambda group: cell.set_group_priority(group, priority),
        )
        typer.echo(f"{changed['id']} has priority {priority}")


Ask = Callable[[str], dict[str, Any]]


def _each(cell: Client, jobs: Sequence[str], then: str, of_job: Ask, of_group: Ask) -> None:
    """Ask for each, and tell what `then` is; one refusal does not keep the others from being asked.

    Ends with the refusals' common exit code, or 1 when they have several.
    """
    codes: dict[int, None] = {}
    for job in jobs:
        try:
            typer.echo(f"{either(cell, job, of_job, of_group)['id']} {then}")
        except ApiError as error:
            codes[refused(error)] = None
    if codes:
        sys.exit(next(iter(codes)) if len(codes) == 1 else FAILED)
