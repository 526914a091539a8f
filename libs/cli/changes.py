"""Changing jobs, arrays and DAGs: cancel, pause, resume, set."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NoReturn

import typer

from libs.cli.context import FAILED, USAGE, Gateway, client, fail, refused
from libs.cli.following import seconds, tell
from libs.cli.listing import Selector
from libs.cli.output import is_terminal
from libs.cli.references import AnyJobs, either
from libs.client import ApiError, Client
from libs.kernel.words import bytes_in, counted

ALIVE = ("QUEUED", "STARTING", "RUNNING", "SUSPENDED", "MIGRATING")
"""States in which a job can be asked to end."""

NO_BOUND = "none"
"""Lifts a bound."""

Yes = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask before several jobs are changed.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (cancel, pause, resume):
        app.command()(command)
    app.command("set")(change)


def cancel(
    jobs: AnyJobs = None,
    selector: Selector = None,
    grace: Annotated[str, typer.Option(help="Time between SIGTERM and SIGKILL.")] = "10s",
    note: Annotated[str, typer.Option(help="Goes on the log.")] = "",
    yes: Yes = False,
    gateway: Gateway = None,
) -> None:
    """End jobs; of an array or a DAG all of its jobs."""
    grace_s = seconds(grace)
    with client(gateway) as cell:
        _each(
            cell,
            _chosen(cell, "cancel", jobs, selector, yes=yes),
            "is asked to end",
            lambda job: cell.cancel(job, grace_s=grace_s, note=note),
            lambda group: cell.cancel_group(group, grace_s=grace_s, note=note),
        )


def pause(jobs: AnyJobs = None, selector: Selector = None, yes: Yes = False, gateway: Gateway = None) -> None:
    """Pause jobs: a waiting one is not placed, a running one is suspended and gives its GPUs to others.

    A job keeps its GPUs while its memory cannot be brought to the host; `sanjaya why JOB` says so.
    """
    with client(gateway) as cell:
        chosen = _chosen(cell, "pause", jobs, selector, yes=yes)
        _each(cell, chosen, "is asked to pause", cell.pause, cell.pause_group)


def resume(jobs: AnyJobs = None, selector: Selector = None, yes: Yes = False, gateway: Gateway = None) -> None:
    """Let paused jobs go on, in their turn: a suspended one where its memory is, as soon as GPUs are free there."""
    with client(gateway) as cell:
        chosen = _chosen(cell, "resume", jobs, selector, yes=yes)
        _each(cell, chosen, "goes on in its turn", cell.resume, cell.resume_group)


def change(
    jobs: AnyJobs = None,
    priority: Annotated[int | None, typer.Option(help="Higher goes first.")] = None,
    max_gpus: Annotated[
        int | None, typer.Option(min=1, help="Most GPUs of an elastic job; one that has more shrinks.")
    ] = None,
    memory_limit: Annotated[
        str | None, typer.Option(metavar="SIZE|none", help="Most memory of each GPU, such as 2GB (operators).")
    ] = None,
    compute_share: Annotated[
        str | None, typer.Option(metavar="0..1|none", help="Most of each GPU's time outside of gaps (operators).")
    ] = None,
    selector: Selector = None,
    yes: Yes = False,
    gateway: Gateway = None,
) -> None:
    """Change jobs that have not ended: their priority, the most GPUs of elastic ones, or bounds of memory and time.

    Of an array or a DAG the priority of all of its jobs. Of the two bounds, one that is not named is lifted.
    """
    bounded = memory_limit is not None or compute_share is not None
    if priority is None and max_gpus is None and not bounded:
        fail("nothing to change", USAGE, "sanjaya set JOB --priority 10, --max-gpus 2, --memory-limit 2GB")
    bounds: dict[str, Any] = {
        "memory_limit_bytes": _memory(memory_limit),
        "compute_share_ratio": _share(compute_share),
    }
    with client(gateway) as cell:
        chosen = _chosen(cell, "set", jobs, selector, yes=yes)
        if priority is not None:
            _each(
                cell,
                chosen,
                f"has priority {priority}",
                lambda job: cell.set_priority(job, priority),
                lambda group: cell.set_group_priority(group, priority),
            )
        if max_gpus is not None:
            _each(
                cell,
                chosen,
                f"may have {counted(max_gpus, 'GPU')} at most",
                lambda job: cell.set_max_gpus(job, max_gpus),
                lambda group: _about_one(cell, group, "--max-gpus is"),
            )
        if bounded:
            _each(
                cell,
                chosen,
                "is bounded so" if any(bound is not None for bound in bounds.values()) else "is not bounded any more",
                lambda job: cell.set_limits(job, **bounds),
                lambda group: _about_one(cell, group, "bounds are"),
            )


def _about_one(cell: Client, group: str, what: str) -> NoReturn:
    """Refuse an array or a DAG; ApiError: there is none of that name."""
    cell.group(group)
    fail(f"{what} about one job, and {group} has several", USAGE, f"{group}[0]")


def _memory(text: str | None) -> int | None:
    """Bytes; ends the process with 2 where there is no unit."""
    if text is None or text == NO_BOUND:
        return None
    found = None if text.strip().isdecimal() else bytes_in(text)
    return found if found is not None else fail(f"--memory-limit {text}: expected a size with a unit, as 2GB", USAGE)


def _share(text: str | None) -> float | None:
    """A part; ends the process with 2 where it is none."""
    if text is None or text == NO_BOUND:
        return None
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    return found if 0 <= found <= 1 else fail(f"--compute-share {text}: expected a number from 0 to 1", USAGE)


def _chosen(cell: Client, verb: str, jobs: list[str] | None, selector: list[str] | None, *, yes: bool) -> list[str]:
    """The jobs that are named, and those that have not ended and have the labels.

    Ends the process with 2 when neither is given, and with 1 when the question, with their number, is not confirmed.
    """
    if not jobs and not selector:
        fail(f"no job to {verb}", USAGE, f"sanjaya {verb} JOB, or -l NAME=VALUE")
    chosen = list(jobs or [])
    if selector:
        found = [job["id"] for job in cell.jobs(label=selector, state=list(ALIVE))]
        if not found:
            tell(f"no job that has not ended has {' and '.join(selector)}")
        chosen = list(dict.fromkeys([*chosen, *found]))
    if len(chosen) > 1 and not yes and is_terminal() and sys.stdin.isatty():
        typer.confirm(f"{verb} {counted(len(chosen), 'job')}?", abort=True)
    return chosen


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
