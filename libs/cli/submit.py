"""`submit` and `run`."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from libs.cli import spec
from libs.cli.checking import check
from libs.cli.context import FAILED, USAGE, Gateway, client, fail
from libs.cli.env_files import filled_in
from libs.cli.following import Timeout, deadline, ended, exit_code, has_output, tell, until, write
from libs.cli.forecasts import start_of
from libs.cli.job_options import Given, describes_a_job, members
from libs.cli.launches import launch_of
from libs.cli.listing import AsJson
from libs.cli.output import Form, is_terminal, show_document
from libs.cli.scripts import from_script, is_script
from libs.client import Client
from libs.contracts.bad_input import BadInput
from libs.kernel.words import counted

Key = Annotated[
    str | None, typer.Option("--idempotency-key", help="Submitting again with the same key changes nothing.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("submit")(submit)
    app.command("run")(run)


@describes_a_job
def submit(
    given: Given,
    idempotency_key: Key = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say whether it would be accepted and could run now; submit nothing.")
    ] = False,
    as_json: AsJson = False,
    gateway: Gateway = None,
) -> None:
    """Submit a job, an array of jobs, or with -f a DAG: `sanjaya submit --gpus v100:2 -- python train.py`."""
    with client(gateway) as cell:
        loaded = spec.from_file(given["file"]) if given["file"] else {}
        if (dag := spec.dag_of(loaded, given["file"])) is not None:
            _submit_dag(cell, dag, given, idempotency_key, dry_run=dry_run, as_json=as_json)
            return
        request = build(cell, given, loaded, send=not dry_run)
        if dry_run:
            _tell_launch(request)
            _tell_verdict(cell.dry_run(request, expected=True), is_asked=True, as_json=as_json)
            return
        check(cell, request, idempotency_key)
        _tell_launch(request)
        accepted = cell.submit(request, idempotency_key=idempotency_key)
        _tell_accepted(accepted, as_json=as_json)


def _tell_accepted(accepted: dict[str, Any], *, as_json: bool) -> None:
    for warning in accepted.get("warnings", ()):
        typer.echo(f"warning: {warning}", err=True)
    jobs = f"{counted(accepted['jobs'], 'job')}  " if accepted["url"].startswith("/v1/groups") else ""
    if as_json:
        show_document(accepted, Form.JSON)
    elif is_terminal():
        typer.echo(f"{accepted['id']}  {accepted['name']}  {jobs}{accepted['state']}   sanjaya why {accepted['id']}")
    else:
        typer.echo(accepted["id"])


def _submit_dag(
    cell: Client, dag: dict[str, Any], given: Given, key: str | None, *, dry_run: bool, as_json: bool
) -> None:
    """All jobs of a file, or none."""
    odd = [name for name, value in given.items() if value and name not in ("file", "workdir", "no_upload")]
    if odd:
        fail(f"--{odd[0].replace('_', '-')} is about one job, and the file has several", USAGE, "give it in the file")
    from libs.cli.files import with_files

    jobs = [
        signed(cell, with_files(cell, filled_in(job), given["workdir"], no_upload=given["no_upload"], send=not dry_run))
        for job in dag["jobs"]
    ]
    if not dry_run:
        _tell_accepted(cell.submit_dag({**dag, "jobs": jobs}, idempotency_key=key), as_json=as_json)
        return
    for job in jobs:
        tell(f"{job.get('name', '')}:")
        alone = {field: value for field, value in job.items() if field != "after"}
        # When it would start is not asked: that depends on the others of the DAG.
        _tell_verdict(cell.dry_run(alone), is_asked=False, as_json=as_json)


def _tell_launch(request: dict[str, Any]) -> None:
    """How many processes there will be, where that is worth a word."""
    if words := launch_of(request):
        tell(words)


def _tell_verdict(found: dict[str, Any], *, is_asked: bool, as_json: bool) -> None:
    """What would become of the job, and where that was asked when it would start; ends with 1 when it would be
    rejected."""
    if as_json:
        show_document(found, Form.JSON)
    else:
        where = ", ".join(f"{counted(gpus, 'GPU')} of {node}" for node, gpus in found["where"].items())
        typer.echo(f"{found['verdict']}: {found['message']} ({found['reason']})" + (f"; {where}" if where else ""))
        if found.get("expected"):
            typer.echo(start_of(found["expected"], found["errors"]))
        elif is_asked and found["verdict"] in ("starts", "waits"):
            typer.echo("when it would start is not known now")
    if found["verdict"] == "rejected":
        sys.exit(FAILED)


@describes_a_job
def run(
    given: Given,
    idempotency_key: Key = None,
    detach: Annotated[bool, typer.Option("-d", "--detach", help="Do not follow it: like submit.")] = False,
    timeout: Timeout = None,
    gateway: Gateway = None,
) -> None:
    """Submit a job, follow its output, and end with its exit code. Ctrl-C leaves the job running."""
    with client(gateway) as cell:
        request = build(cell, given, spec.from_file(given["file"]) if given["file"] else {})
        if request.get("array") is not None and not detach:
            fail(
                "run follows one job, and this is an array", USAGE, "sanjaya submit --array …, then sanjaya wait ARRAY"
            )
        check(cell, request, idempotency_key)
        _tell_launch(request)
        accepted = cell.submit(request, idempotency_key=idempotency_key)
        job_id = accepted["id"]
        if detach:
            typer.echo(job_id)
            return
        tell(f"{job_id} accepted")
        with deadline(timeout, job_id, f"sanjaya why {job_id}"):
            until(lambda: cell.job(job_id), has_output, tell)
            write(cell, job_id, follow=True)
            job = until(lambda: cell.job(job_id), ended)
        tell(f"{job_id} {job['state']}: {job['message']}")
        sys.exit(exit_code(job))


def build(cell: Client, given: Given, loaded: dict[str, Any], *, send: bool = True) -> dict[str, Any]:
    """The request: the file's fields, over which the options go.

    Args:
        loaded: what stands in the file; empty: there is none.
        send: whether the working directory is uploaded; else the files that the command names are looked for only.
    """
    words: list[str] = list(given["command"] or [])
    request = dict(loaded)
    if not given["file"] and words and is_script(words[0]):
        request, words = _script(words, given["workdir"]), []
    if words:
        request["command"] = words
    if "command" not in request:
        fail("no command", USAGE, "sanjaya submit -- python train.py, or -f job.yaml")
    request = filled_in(request)
    request.update(members(given, request))
    from libs.cli.files import with_files  # not by commands that only ask: rules of ignored files take 30 ms

    return signed(cell, with_files(cell, request, given["workdir"], no_upload=given["no_upload"], send=send))


def signed(cell: Client, request: dict[str, Any]) -> dict[str, Any]:
    """The job request with its user; a cell that knows its users by their tokens does not need to be told."""
    if cell.token or not (user := _user()):
        return request
    return {"user": user, **request}


def _script(words: list[str], workdir: Path | None) -> dict[str, Any]:
    """A batch script with its arguments; one that is uploaded is run where it will be."""
    path = Path(words[0]).absolute()
    if workdir is not None and path.is_relative_to(workdir.absolute()):
        command = ["/bin/bash", str(path.relative_to(workdir.absolute())), *words[1:]]
    else:
        command = ["/bin/bash", str(path), *words[1:]]
    try:
        return from_script(path.read_text(), words[0], command, path.stem)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(words[0], str(error), "a script") from None


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None
