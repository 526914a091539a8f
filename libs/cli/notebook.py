"""`notebook`: a Jupyter server as a job, reached from this machine."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from libs.cli.checking import check
from libs.cli.context import FAILED, USAGE, Gateway, client, fail
from libs.cli.following import ended, has_output, tell, until
from libs.cli.inside import forwarded
from libs.cli.job_options import Given, describes_a_job
from libs.cli.submit import build

if TYPE_CHECKING:
    from libs.client import Client
    from libs.contracts.sessions import Opened

SCRIPT = """\
if ! command -v jupyter > /dev/null; then
  echo 'no jupyter in the environment of this job  try: --setup "pip install jupyterlab", --venv or --conda' >&2
  exit 127
fi
free='import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
[ "$(id -u)" = 0 ] && root=--allow-root
exec jupyter lab --no-browser --ip=127.0.0.1 --port="$(python -c "$free")" --ServerApp.port_retries=0 $root
"""
"""What the job runs. Jupyter itself makes the token, and says it in its output once it listens."""
URL = re.compile(r"http://127\.0\.0\.1:(?P<port>\d+)(?P<rest>/\S*token=\w+)")
USUAL_PORT = 8888
SETUP = "[setup] "
"""Before each line of the output that comes from the job's setup (`torch_agent/environments/setups.py`)."""


class _Stopped(Exception):
    """The user has pressed Ctrl-C before there was a notebook."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(notebook)


@describes_a_job
def notebook(
    given: Given,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Of this machine; default: 8888, or a free one.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="The job goes on after Ctrl-C.")] = False,
    gateway: Gateway = None,
) -> None:
    """Run Jupyter as a job, and open it here: `sanjaya notebook --gpus 1 --setup "pip install jupyterlab"`.

    Ctrl-C ends the job, which frees its GPUs; with --keep it ends the forwarding alone. What ends the connection
    otherwise leaves the job as it is.
    """
    for name in ("command", "file", "array"):
        if given[name]:
            fail(f"notebook runs Jupyter, and takes no {name}", USAGE, "sanjaya submit")
    with client(gateway) as cell:
        words = {**given, "command": ["/bin/sh", "-c", SCRIPT], "name": given["name"] or "notebook"}
        request = {**build(cell, words, {}), "launcher": "per-node"}
        check(cell, request, None)
        job_id = cell.submit(request)["id"]
        tell(f"{job_id} accepted")
        signal.signal(signal.SIGINT, _stopped)
        try:
            over = _reached(cell, job_id, port)
        except _Stopped:
            over = None
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # what is asked for now takes a moment
        if over is not None:
            fail(f"the notebook is over: {over}", FAILED, f"sanjaya why {job_id}")
        _left(cell, job_id, keep=keep)


def _reached(cell: Client, job_id: str, port: int | None) -> str | None:
    """Forward the port of the server once it listens. Returns why that is over; None: by Ctrl-C."""
    until(lambda: cell.job(job_id), has_output, tell)
    found = _said(cell, job_id)
    if found is None:
        job = until(lambda: cell.job(job_id), ended)
        return str(job["message"])

    def on_open(opened: Opened, own: int) -> None:
        tell(f"{opened.name} on {opened.node_id}, until Ctrl-C:")
        print(f"http://127.0.0.1:{own}{found['rest']}", flush=True)

    remote = int(found["port"])
    try:
        return forwarded(cell, job_id, remote, USUAL_PORT if port is None else port, on_open)
    except OSError as error:
        if port is None:
            return forwarded(cell, job_id, remote, 0, on_open)
        fail(f"port {port} of this machine: {error.strerror or error}", USAGE, f"sanjaya forward {job_id} {remote}:0")


def _said(cell: Client, job_id: str) -> Any:
    """The URL in the job's output; None: it has ended without one, and its output is shown."""
    lines = []
    for line in cell.logs(job_id, follow=True):
        if (found := URL.search(line["text"])) is not None:
            return found
        if line["text"].startswith(SETUP):
            tell(line["text"])
        else:
            lines.append(line["text"])
    for text in lines[-20:]:
        tell(text)
    return None


def _left(cell: Client, job_id: str, *, keep: bool) -> None:
    if keep:
        tell(f"{job_id} goes on  again: sanjaya logs {job_id}, sanjaya forward {job_id} PORT")
        return
    cell.cancel(job_id, note="its user has left the notebook")
    tell(f"{job_id} is being ended; for an hour its files can be had: sanjaya cp {job_id}:NAME .")


def _stopped(*_: object) -> None:
    raise _Stopped
