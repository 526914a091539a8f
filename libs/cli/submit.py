"""`submit` and `run`."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from libs.cli import spec
from libs.cli.config import configured
from libs.cli.context import FAILED, USAGE, Gateway, client, fail
from libs.cli.following import Timeout, deadline, ended, exit_code, has_output, tell, until, write
from libs.cli.output import Form, is_terminal, show_document
from libs.cli.scripts import from_script, is_script
from libs.client import Client
from libs.contracts.bad_input import BadInput

Command = Annotated[list[str] | None, typer.Argument(help="Behind `--`: the command; or a script with #SBATCH lines.")]
File = Annotated[str | None, typer.Option("-f", "--file", help="Job as YAML or JSON; - for standard input.")]
Name = Annotated[str | None, typer.Option("-n", "--name")]
Gpus = Annotated[str | None, typer.Option(help="A number, or TYPE:NUMBER such as v100:2.")]
Nodes = Annotated[int | None, typer.Option(help="Most servers to spread over.")]
Tenant = Annotated[str | None, typer.Option("-q", "--tenant", "--queue")]
Priority = Annotated[int | None, typer.Option()]
Time = Annotated[str | None, typer.Option("--time", help="Limit of one attempt: seconds, or H:MM:SS.")]
Env = Annotated[list[str] | None, typer.Option(help="NAME=VALUE; repeat.")]
Label = Annotated[list[str] | None, typer.Option("-l", "--label", help="NAME=VALUE; repeat.")]
Workdir = Annotated[Path | None, typer.Option(help="Directory to upload and run in.")]
WorkdirOnNode = Annotated[str | None, typer.Option(help="Directory that the nodes have; nothing is uploaded.")]
Retries = Annotated[int | None, typer.Option("--max-retries")]
Elastic = Annotated[str | None, typer.Option(help="MIN:MAX GPUs: it may be halved or doubled within.")]
Class = Annotated[str | None, typer.Option("--class", help="guaranteed: no other class is scheduled yet.")]
Launcher = Annotated[str | None, typer.Option(help="ranks: a process per GPU; command: one per node.")]
Model = Annotated[str | None, typer.Option(help="What it trains: jobs of one model and batch size are alike.")]
BatchSize = Annotated[int | None, typer.Option()]
Steps = Annotated[float | None, typer.Option("--total-steps", help="Mini-batches that it will do.")]
Rate = Annotated[list[str] | None, typer.Option(help="TYPE=STEPS a second alone on this GPU type; repeat.")]
Weight = Annotated[float | None, typer.Option(help="Its part beside others of weight 1 under fair policies.")]
Restartable = Annotated[
    bool | None,
    typer.Option("--restartable", help="Told to stop, it saves what it has done and goes on from there elsewhere."),
]
Deadline = Annotated[float | None, typer.Option("--deadline-s", help="Seconds from now, for policies with deadlines.")]
Key = Annotated[
    str | None, typer.Option("--idempotency-key", help="Submitting again with the same key changes nothing.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("submit")(submit)
    app.command("run")(run)


def submit(
    command: Command = None,
    file: File = None,
    name: Name = None,
    gpus: Gpus = None,
    nodes: Nodes = None,
    tenant: Tenant = None,
    priority: Priority = None,
    time_limit: Time = None,
    env: Env = None,
    label: Label = None,
    workdir: Workdir = None,
    workdir_on_node: WorkdirOnNode = None,
    max_retries: Retries = None,
    elastic: Elastic = None,
    job_class: Class = None,
    launcher: Launcher = None,
    model: Model = None,
    batch_size: BatchSize = None,
    total_steps: Steps = None,
    rate: Rate = None,
    weight: Weight = None,
    restartable: Restartable = None,
    deadline_s: Deadline = None,
    idempotency_key: Key = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would become of it; submit nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
    gateway: Gateway = None,
) -> None:
    """Submit a job: `sanjaya submit --gpus v100:2 -- python train.py`."""
    given = locals()
    with client(gateway) as cell:
        request = build(cell, given)
        if dry_run:
            _tell_verdict(cell.dry_run(request), as_json=as_json)
            return
        accepted = cell.submit(request, idempotency_key=idempotency_key)
        if as_json:
            show_document(accepted, Form.JSON)
        elif is_terminal():
            typer.echo(f"{accepted['id']}  {accepted['name']}  {accepted['state']}   sanjaya why {accepted['id']}")
        else:
            typer.echo(accepted["id"])


def _tell_verdict(found: dict[str, Any], *, as_json: bool) -> None:
    """What would become of the job; ends with 1 when it would be rejected."""
    if as_json:
        show_document(found, Form.JSON)
    else:
        where = ", ".join(f"{gpus} GPUs of {node}" for node, gpus in found["where"].items())
        typer.echo(f"{found['verdict']}: {found['message']} ({found['reason']})" + (f"; {where}" if where else ""))
    if found["verdict"] == "rejected":
        sys.exit(FAILED)


def run(
    command: Command = None,
    file: File = None,
    name: Name = None,
    gpus: Gpus = None,
    nodes: Nodes = None,
    tenant: Tenant = None,
    priority: Priority = None,
    time_limit: Time = None,
    env: Env = None,
    label: Label = None,
    workdir: Workdir = None,
    workdir_on_node: WorkdirOnNode = None,
    max_retries: Retries = None,
    elastic: Elastic = None,
    job_class: Class = None,
    launcher: Launcher = None,
    model: Model = None,
    batch_size: BatchSize = None,
    total_steps: Steps = None,
    rate: Rate = None,
    weight: Weight = None,
    restartable: Restartable = None,
    deadline_s: Deadline = None,
    idempotency_key: Key = None,
    detach: Annotated[bool, typer.Option("-d", "--detach", help="Like submit.")] = False,
    timeout: Timeout = None,
    gateway: Gateway = None,
) -> None:
    """Submit a job, follow its output, and end with its exit code. Ctrl-C leaves the job running."""
    given = locals()
    with client(gateway) as cell:
        accepted = cell.submit(build(cell, given), idempotency_key=idempotency_key)
        job_id = accepted["id"]
        if detach:
            typer.echo(job_id)
            return
        tell(f"{job_id} accepted")
        with deadline(timeout, job_id, f"sanjaya why {job_id}"):
            until(cell, job_id, has_output, tell)
            write(cell, job_id, follow=True)
            job = until(cell, job_id, ended)
        tell(f"{job_id} {job['state']}: {job['message']}")
        sys.exit(exit_code(job))


def build(cell: Client, given: dict[str, Any]) -> dict[str, Any]:
    """The request: the file's fields, over which the flags go; the working directory is uploaded."""
    words: list[str] = list(given["command"] or [])
    request: dict[str, Any] = {}
    if given["file"]:
        request = spec.from_file(given["file"])
    elif words and is_script(words[0]):
        request, words = _script(words, given["workdir"]), []
    if words:
        request["command"] = words
    if "command" not in request:
        fail("no command", USAGE, "sanjaya submit -- python train.py, or -f job.yaml")
    flags = {
        "name": given["name"],
        "gpus": given["gpus"],
        "tenant": given["tenant"],
        "priority": given["priority"],
        "time_limit_s": given["time_limit"],
        "working_dir": given["workdir_on_node"],
        "max_retries": given["max_retries"],
        "elastic": given["elastic"],
        "class": given["job_class"],
        "launcher": given["launcher"],
        "model": given["model"],
        "batch_size": given["batch_size"],
        "total_steps": given["total_steps"],
        "throughputs": spec.rates(given["rate"], "--rate") if given["rate"] else None,
        "weight": given["weight"],
        "restartable": given["restartable"],
        "deadline_s": given["deadline_s"],
    }
    request.update({field: value for field, value in flags.items() if value is not None})
    if given["nodes"] is not None:
        request["gpus"] = gpus_of(request.get("gpus", 1), given["nodes"])
    for field, texts in (("env", given["env"]), ("labels", given["label"])):
        if texts:
            request[field] = {**request.get(field, {}), **spec.pairs(texts, f"--{field}")}
    if given["workdir"]:
        request.pop("working_dir", None)
        request["code_id"] = uploaded(cell, given["workdir"])
    return signed(request)


def uploaded(cell: Client, workdir: Path) -> str:
    """The id of a directory that is sent now."""
    archive = spec.pack(workdir)
    tell(f"uploading {workdir} ({len(archive) / 1024:.0f} KiB)")
    return cell.upload_code(archive)


def signed(request: dict[str, Any]) -> dict[str, Any]:
    """The job request with who asks; a cell that knows its users by their tokens does not need to be told."""
    if configured("token").value or not (user := _user()):
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


def gpus_of(wanted: Any, nodes: int | None) -> Any:
    """What is asked for, as it is written, or with a bound on the servers."""
    if nodes is None or not isinstance(wanted, dict | int | str):
        return wanted
    if isinstance(wanted, dict):
        return {**wanted, "max_nodes": nodes}
    types, _, number = str(wanted).rpartition(":")
    if not types and not number.lstrip("-").isdigit():
        types, number = number, "1"
    if not number.lstrip("-").isdigit():
        return wanted  # the gateway says what is wrong with it
    return {"count": int(number), **({"types": types.split(",")} if types else {}), "max_nodes": nodes}
