"""How users name jobs: an id, the beginning of one, a name, or `last`."""

from __future__ import annotations

from typing import Annotated

import typer

from libs.cli.config import configured
from libs.cli.context import NOT_FOUND, client, fail
from libs.client import Client, ClientError
from libs.contracts.bad_input import BadInput

LAST = "last"
OFFERED = 50
"""Most jobs that completion offers."""


def completions(beginning: str) -> list[tuple[str, str]]:
    """Ids, names and `last` that begin so, for the shell; nothing when no cell answers."""
    try:
        configured("gateway")
        with client() as cell:
            jobs = [job for job, _ in zip(cell.jobs(), range(OFFERED), strict=False)]
    except (ClientError, BadInput):
        return []
    offered = [(job["id"], f"{job['name']} {job['state']}") for job in jobs] + [(LAST, "the newest job")]
    offered += [(name, "") for name in dict.fromkeys(job["name"] for job in jobs)]
    return [(word, hint) for word, hint in offered if word.startswith(beginning)]


Job = Annotated[
    str, typer.Argument(help="Id, the beginning of one, a name, or `last`.", autocompletion=completions, metavar="JOB")
]
SomeJobs = Annotated[
    list[str], typer.Argument(help="Ids, names, or `last`.", autocompletion=completions, metavar="JOB...")
]
AnyJobs = Annotated[
    list[str] | None, typer.Argument(help="Ids, names, or `last`.", autocompletion=completions, metavar="[JOB...]")
]


def resolve(cell: Client, job: str) -> str:
    """`last` is the newest job; everything else the gateway resolves."""
    if job != LAST:
        return job
    newest = next(cell.jobs(limit=1), None)
    if newest is None:
        fail("there are no jobs yet", NOT_FOUND, "sanjaya submit -- python train.py")
    return str(newest["id"])


def id_of(cell: Client, job: str) -> str:
    """The full id."""
    return str(cell.job(resolve(cell, job))["id"])
