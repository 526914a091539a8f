"""Staying with a job: its output, its end, its exit code."""

from __future__ import annotations

import math
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from libs.cli.context import CANCELLED, DONE, FAILED, TIMED_OUT, USAGE, Gateway, client, fail
from libs.cli.group_views import counts_of
from libs.cli.listing import AsJson
from libs.cli.output import Form, is_terminal, show_document
from libs.cli.references import Job, either, id_of
from libs.client import Client
from libs.client.client import FINAL

ASK_EVERY_S = 0.3
WAITS = ("QUEUED", "STARTING")
"""States before there is any output."""
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

Timeout = Annotated[str | None, typer.Option(help="30s, 10m, 2h; then exit code 124, and nothing is cancelled.")]
PassOn = Annotated[bool, typer.Option("--exit-code", help="End with the job's own exit code.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(logs)
    app.command()(wait)


def logs(
    job: Job,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Until the job has ended.")] = False,
    tail: Annotated[int | None, typer.Option(min=0, help="The last lines only.")] = None,
    since: Annotated[str | None, typer.Option(help="Of the last 30s, 10m, 2h.")] = None,
    rank: Annotated[int | None, typer.Option(min=0, help="Of this process of a gang.")] = None,
    pass_on: PassOn = False,
    gateway: Gateway = None,
) -> None:
    """A job's output; --exit-code waits for its end. On a terminal, -f marks lines that say why the job fails."""
    with client(gateway) as cell:
        job_id = id_of(cell, job)
        since_s = time.time() - seconds(since) if since else None
        write(cell, job_id, marks=follow and is_terminal(), follow=follow, tail=tail, since_s=since_s, rank=rank)
        if pass_on:
            sys.exit(exit_code(until(lambda: cell.job(job_id), ended)))


def write(cell: Client, job_id: str, *, marks: bool = False, **filters: Any) -> None:
    """A job's lines, each on the stream it was written to; with marks behind those that say why it fails."""
    mark = _marks() if marks else None
    for line in cell.logs(job_id, **filters):
        print(line["text"], file=sys.stderr if line["stream"] == "stderr" else sys.stdout, flush=True)
        if mark is not None and (said := mark(line)):
            tell(said)


def _marks() -> Callable[[dict[str, Any]], str]:
    from libs.cli.marks import Marks  # rules take half a second to load

    return Marks().of


def wait(
    job: Job, timeout: Timeout = None, pass_on: PassOn = False, as_json: AsJson = False, gateway: Gateway = None
) -> None:
    """Wait until a job, or a whole array or DAG, has ended, and say meanwhile how it is. Exit code 0: it succeeded."""
    with client(gateway) as cell:
        found = either(cell, job, cell.job, cell.group)
        known_as = found["id"]
        with deadline(timeout, known_as, f"sanjaya why {known_as}"):
            look = cell.group if "counts" in found else cell.job
            done = until(lambda: look(known_as), ended, tell)
        if as_json:
            show_document(done, Form.JSON)
        else:
            typer.echo(sentence(done))
        sys.exit(exit_code(done) if pass_on else _verdict(done))


def until(
    look: Callable[[], dict[str, Any]],
    holds: Callable[[dict[str, Any]], bool],
    tell: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """The job, array or DAG once something holds of it; what changes until then is told."""
    told = ""
    while True:
        found = look()
        if holds(found):
            return found
        if tell is not None and sentence(found) != told:
            told = sentence(found)
            tell(told)
        time.sleep(ASK_EVERY_S)


def sentence(found: dict[str, Any]) -> str:
    """How a job, an array or a DAG is."""
    return f"{found['id']} {found['state']}: {found['message'] if 'message' in found else counts_of(found)}"


def ended(job: dict[str, Any]) -> bool:
    """Whether nothing will become of it any more."""
    return job["state"] in FINAL


def has_output(job: dict[str, Any]) -> bool:
    """Whether it has begun to run, or has ended."""
    return job["state"] not in WAITS or job["first_started_s"] is not None


def tell(sentence: str) -> None:
    """Progress, for people."""
    typer.echo(sentence, err=True)


@contextmanager
def deadline(timeout: str | None, what: str, hint: str) -> Iterator[None]:
    """End the process with 124 when the time is over, whatever it is waiting for.

    Args:
        what: the job or the sweep that should have ended.
        hint: how to find out why it has not.
    """
    if timeout is None:
        yield
        return
    limit_s = seconds(timeout)

    def over(*_: object) -> None:
        fail(f"{what} has not ended within {limit_s:g} s", TIMED_OUT, hint)

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, max(limit_s, 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def exit_code(job: dict[str, Any]) -> int:
    """The job's own code when it ended by itself, else what stands for its end."""
    verdict = _verdict(job)
    if verdict != FAILED:
        return verdict
    if job.get("exit_code"):
        return int(job["exit_code"])
    return 128 + int(job["signal"]) if job.get("signal") else FAILED


def _verdict(job: dict[str, Any]) -> int:
    return {"SUCCEEDED": DONE, "CANCELLED": CANCELLED}.get(job["state"], FAILED)


def moment(option: str, text: str) -> float:
    """A time, seconds since the epoch: `2h` means two hours ago; or a date, or a time (RFC 3339).

    Without a zone it is local time. Ends the process with 2 when it is none of these.
    """
    from datetime import datetime

    if text and text[-1] in UNITS and text[:-1].replace(".", "", 1).isdigit():
        return time.time() - seconds(text)
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        fail(f"{option} {text!r}: expected a time like 2h, 7d, 2026-11-20 or 2026-11-20T22:14:03Z", USAGE)


def seconds(text: str) -> float:
    """`30s`, `10m`, `2h`, `7d`, or a number of seconds; ends the process with 2 when it is none of these."""
    number, unit = (text[:-1], text[-1]) if text and text[-1] in UNITS else (text, "s")
    try:
        found = float(number) * UNITS[unit]
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:
        fail(f"{text!r} is no time", USAGE, "30s, 10m, 2h or 7d")
    return found
