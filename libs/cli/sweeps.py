"""Searches for good hyper-parameters: `sweep`, `sweeps`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from libs.cli import spec
from libs.cli.context import USAGE, Gateway, client, fail
from libs.cli.env_files import filled_in
from libs.cli.following import Timeout, deadline, tell
from libs.cli.job_options import NoUpload, Workdir
from libs.cli.listing import AsJson, Limit, NoHeaders, Output, Sort, Watch, asked, listed
from libs.cli.output import Form, is_terminal, show, show_document, show_one
from libs.cli.references import Sweep, resolve_sweep
from libs.cli.submit import Key, signed
from libs.cli.sweep_following import followed, outcome, sentence
from libs.cli.sweep_views import SWEEPS, described, trial_columns
from libs.cli.writing import check_picture, write_picture
from libs.client import Client


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(sweeps)
    group = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
    group.callback()(sweep)
    commands: dict[str, Callable[..., None]] = {"show": show_sweep, "wait": wait, "cancel": cancel, "plot": plot}
    for name, command in commands.items():
        group.command(name)(command)
    app.add_typer(group, name="sweep")


def sweep(
    context: typer.Context,
    file: Annotated[
        str | None, typer.Option("-f", "--file", help="Sweep as YAML or JSON; - for standard input.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("-n", "--name", help="Stands in lists; default: that of the file.")
    ] = None,
    workdir: Workdir = None,
    no_upload: NoUpload = False,
    idempotency_key: Key = None,
    stay: Annotated[bool, typer.Option("--wait", help="Show the trials until the sweep has ended.")] = False,
    timeout: Timeout = None,
    as_json: AsJson = False,
    gateway: Gateway = None,
) -> None:
    """Search for good hyper-parameters: `sanjaya sweep -f sweep.yaml`. Exit code of --wait: as of `sweep wait`."""
    if context.invoked_subcommand is not None:
        if any(context.params.values()):
            fail(f"options before `{context.invoked_subcommand}` are those of a submission", USAGE, "options behind it")
        return
    if file is None:
        fail("no sweep to submit", USAGE, "sanjaya sweep -f sweep.yaml")
    with client(gateway) as cell:
        request = build(cell, file, name, workdir, no_upload=no_upload)
        accepted = cell.submit_sweep(request, idempotency_key=idempotency_key)
        if not stay:
            _tell_accepted(accepted, as_json=as_json)
            return
        if is_terminal() or as_json:
            tell(f"{accepted['id']} accepted")
        else:
            print(accepted["id"], flush=True)
        ended = _awaited(cell, accepted["id"], timeout)
        if as_json:
            show_document(ended, Form.JSON)
        tell(sentence(ended))
        sys.exit(outcome(ended))


def build(
    cell: Client, file: str, name: str | None, workdir: Path | None, *, no_upload: bool = False
) -> dict[str, Any]:
    """The request: the file's fields, over which the flags go; the working directory is uploaded."""
    request = spec.sweep_from_file(file)
    from libs.cli.files import with_files

    trial = signed(cell, with_files(cell, filled_in(request["trial"]), workdir, no_upload=no_upload))
    return {**request, "trial": trial, **({"name": name} if name else {})}


def _tell_accepted(accepted: dict[str, Any], *, as_json: bool) -> None:
    sweep_id = accepted["id"]
    if as_json:
        show_document(accepted, Form.JSON)
    elif is_terminal():
        typer.echo(f"{sweep_id}  {accepted['name']}  {accepted['state']}   sanjaya sweep show {sweep_id}")
    else:
        typer.echo(sweep_id)


def _awaited(cell: Client, sweep_id: str, timeout: str | None) -> dict[str, Any]:
    with deadline(timeout, sweep_id, f"sanjaya sweep show {sweep_id}"):
        return followed(cell, sweep_id)


def wait(
    sweep: Sweep,
    timeout: Timeout = None,
    as_json: AsJson = False,
    gateway: Gateway = None,
) -> None:
    """Show the trials until the sweep has ended. Exit code 0: it has a best trial; 1: none; 143: it was cancelled."""
    with client(gateway) as cell:
        ended = _awaited(cell, cell.sweep(resolve_sweep(cell, sweep))["id"], timeout)
    if as_json:
        show_document(ended, Form.JSON)
    else:
        typer.echo(sentence(ended))
    sys.exit(outcome(ended))


def sweeps(
    output: Output = Form.TABLE,
    as_json: AsJson = False,
    state: Annotated[
        list[str] | None, typer.Option(help="RUNNING, STOPPING, TARGET_REACHED, …; repeat for alternatives.")
    ] = None,
    limit: Limit = 50,
    sort: Sort = None,
    no_headers: NoHeaders = False,
    watch: Watch = False,
    gateway: Gateway = None,
) -> None:
    """List sweeps, newest first."""
    states = [text.upper() for text in state or []]
    how = asked(output, as_json, no_headers, sort, limit, watch)
    with client(gateway) as cell:
        listed(lambda: list(cell.sweeps(limit=limit, state=states)), SWEEPS, how)


def show_sweep(sweep: Sweep, output: Output = Form.TABLE, as_json: AsJson = False, gateway: Gateway = None) -> None:
    """Everything that is known of a sweep, and its trials."""
    with client(gateway) as cell:
        found = cell.sweep(resolve_sweep(cell, sweep))
    form = Form.JSON if as_json else output

    def describe() -> None:
        typer.echo("\n".join([*described(found), ""]))
        show(found["trials"], trial_columns(found), form)

    show_one(found, form, describe)


def cancel(
    sweep: Sweep,
    note: Annotated[str, typer.Option(help="Goes on the log.")] = "",
    gateway: Gateway = None,
) -> None:
    """End a sweep with all its trials."""
    with client(gateway) as cell:
        asked_of = cell.cancel_sweep(resolve_sweep(cell, sweep), note=note)
        typer.echo(f"{asked_of['id']} is asked to end")


def plot(
    sweep: Sweep,
    out: Annotated[Path, typer.Option(help="FILE.svg or FILE.png.")],
    gateway: Gateway = None,
) -> None:
    """Draw the best value so far over time, and the trials' learning curves."""
    check_picture(out)
    with client(gateway) as cell:
        found = cell.sweep(resolve_sweep(cell, sweep))
        curves = cell.sweep_curves(found["id"])
    if not curves["best"]:
        fail(f"no trial of {found['id']} has reported {found['metric']!r} yet: there is nothing to draw", USAGE)
    from libs.cli.sweep_drawing import drawing

    write_picture(drawing(found, curves), out)
    typer.echo(str(out), err=True)
