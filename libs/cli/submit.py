"""`submit` and `run`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from libs.cli import spec
from libs.cli.context import CANCELLED, DONE, FAILED, TIMED_OUT, USAGE, Gateway, client, fail
from libs.cli.output import Form, is_terminal, one
from libs.client import Client

FINAL = ("SUCCEEDED", "FAILED", "CANCELLED", "REJECTED")
ASK_EVERY_S = 0.3

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
Elastic = Annotated[str | None, typer.Option(help="MIN:MAX GPUs.")]
Class = Annotated[str | None, typer.Option("--class", help="guaranteed or opportunistic.")]
Launcher = Annotated[str | None, typer.Option(help="ranks: a process per GPU; command: one per node.")]
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
    idempotency_key: Key = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would become of it; submit nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
    gateway: Gateway = None,
) -> None:
    """Submit a job: `sanjaya submit --gpus v100:2 -- python train.py`."""
    with client(gateway) as cell:
        request = build(cell, locals())
        if dry_run:
            one(cell.dry_run(request), Form.JSON if as_json else Form.TABLE)
            return
        accepted = cell.submit(request, idempotency_key=idempotency_key)
        if as_json:
            one(accepted, Form.JSON)
        elif is_terminal():
            typer.echo(f"{accepted['id']}  {accepted['name']}  {accepted['state']}   sanjaya why {accepted['id']}")
        else:
            typer.echo(accepted["id"])


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
    idempotency_key: Key = None,
    detach: Annotated[bool, typer.Option("-d", "--detach", help="Like submit.")] = False,
    timeout: Annotated[float | None, typer.Option(help="Seconds to follow it; it goes on afterwards.")] = None,
    gateway: Gateway = None,
) -> None:
    """Submit a job, follow its output, and end with its exit code. Ctrl-C leaves the job running."""
    with client(gateway) as cell:
        accepted = cell.submit(build(cell, locals()), idempotency_key=idempotency_key)
        typer.echo(f"{accepted['id']} accepted", err=True)
        if detach:
            typer.echo(accepted["id"])
            return
        for line in cell.log_lines(accepted["id"], follow=True):
            print(line["text"], file=sys.stderr if line["stream"] == "stderr" else sys.stdout, flush=True)
        job = wait_for(cell, accepted["id"], timeout)
        typer.echo(f"{job['id']} {job['state']}: {job['message']}", err=True)
        sys.exit(exit_code(job))


def build(cell: Client, given: dict[str, Any]) -> dict[str, Any]:
    """The request: the file's fields, over which the flags go; the working directory is uploaded."""
    words: list[str] = list(given["command"] or [])
    request: dict[str, Any] = {}
    if given["file"]:
        request = spec.from_file(given["file"])
    elif len(words) == 1 and words[0].endswith(".sh") and Path(words[0]).is_file():
        request, words = spec.from_script(Path(words[0]), Path(words[0]).read_text()), []
    if words:
        request["command"] = words
    if "command" not in request:
        fail("no command", USAGE, "sanjaya submit -- python train.py, or -f job.yaml")
    flags = {
        "name": given["name"],
        "gpus": _gpus(given["gpus"], given["nodes"]),
        "tenant": given["tenant"],
        "priority": given["priority"],
        "time_limit_s": given["time_limit"],
        "working_dir": given["workdir_on_node"],
        "max_retries": given["max_retries"],
        "elastic": given["elastic"],
        "class": given["job_class"],
        "launcher": given["launcher"],
    }
    request.update({field: value for field, value in flags.items() if value is not None})
    for field, texts in (("env", given["env"]), ("labels", given["label"])):
        if texts:
            request[field] = {**request.get(field, {}), **spec.pairs(texts, f"--{field}")}
    if given["workdir"]:
        archive = spec.pack(given["workdir"])
        typer.echo(f"uploading {given['workdir']} ({len(archive) / 1024:.0f} KiB)", err=True)
        request["code_id"] = cell.upload_code(archive)
    request.setdefault("user", os.environ.get("USER") or os.environ.get("LOGNAME") or "unknown")
    return request


def _gpus(text: str | None, nodes: int | None) -> Any:
    """`4`, `v100:2`, or both with a bound on the servers."""
    if text is None and nodes is None:
        return None
    types, _, number = (text or "1").rpartition(":")
    if not number.lstrip("-").isdigit():
        return text  # the gateway says what is wrong with it
    if nodes is None and not types:
        return int(number)
    bound = {"max_nodes": nodes} if nodes is not None else {}
    return {"count": int(number), **({"types": types.split(",")} if types else {}), **bound}


def wait_for(cell: Client, job: str, timeout_s: float | None = None) -> dict[str, Any]:
    """The job once it has ended; the process ends with 124 when that takes too long."""
    ended = next((state for state in _states(cell, job, timeout_s) if state["state"] in FINAL), None)
    if ended is None:
        fail(f"{job} has not ended within {timeout_s:g} s", TIMED_OUT, f"sanjaya why {job}")
    return ended


def _states(cell: Client, job: str, timeout_s: float | None) -> Iterator[dict[str, Any]]:
    deadline = time.monotonic() + timeout_s if timeout_s is not None else None
    while deadline is None or time.monotonic() < deadline:
        yield cell.job(job)
        time.sleep(ASK_EVERY_S)


def exit_code(job: dict[str, Any]) -> int:
    """The job's own code when it ended by itself, else what stands for its end."""
    if job["state"] == "SUCCEEDED":
        return DONE
    if job["state"] == "CANCELLED":
        return CANCELLED
    if job.get("exit_code"):
        return int(job["exit_code"])
    return 128 + int(job["signal"]) if job.get("signal") else FAILED
