"""How users name jobs, arrays, DAGs and sweeps: an id, the beginning of one, a name, or `last`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

import typer

from libs.cli.config import configured
from libs.cli.context import NOT_FOUND, client, fail
from libs.cli.group_views import as_row
from libs.client import ApiError, Client, ClientError
from libs.contracts.bad_input import BadInput

T = TypeVar("T")

Row = dict[str, Any]
LAST = "last"
OFFERED = 50
"""Most jobs or sweeps that completion offers."""


def completions(beginning: str) -> list[tuple[str, str]]:
    """Ids, names and `last` of jobs, arrays and DAGs that begin so, for the shell; nothing when no cell answers."""
    return _offered(beginning, "job", lambda cell: map(as_row, cell.jobs(limit=OFFERED, grouped=True)))


def sweep_completions(beginning: str) -> list[tuple[str, str]]:
    """As `completions`, of sweeps."""
    return _offered(beginning, "sweep", lambda cell: cell.sweeps(limit=OFFERED))


def _offered(beginning: str, word: str, newest: Callable[[Client], Iterator[Row]]) -> list[tuple[str, str]]:
    try:
        configured("gateway")
        with client() as cell:
            rows = list(newest(cell))
    except (ClientError, BadInput):
        return []
    offered = [(row["id"], f"{row['name']} {row['state']}") for row in rows] + [(LAST, f"the newest {word}")]
    offered += [(name, "") for name in dict.fromkeys(row["name"] for row in rows)]
    return [(text, hint) for text, hint in offered if text.startswith(beginning)]


Job = Annotated[
    str, typer.Argument(help="Id, the beginning of one, a name, or `last`.", autocompletion=completions, metavar="JOB")
]
AnyJobs = Annotated[
    list[str] | None, typer.Argument(help="Ids, names, or `last`.", autocompletion=completions, metavar="[JOB...]")
]
Sweep = Annotated[
    str,
    typer.Argument(
        help="Id, the beginning of one, a name, or `last`.", autocompletion=sweep_completions, metavar="SWEEP"
    ),
]


def either(cell: Client, reference: str, of_job: Callable[[str], T], of_group: Callable[[str], T]) -> T:
    """What is done with a job; or with an array or a DAG, where the reference means one and no job."""
    known_as = resolve(cell, reference)
    first, second = (of_group, of_job) if known_as.startswith(("a-", "d-")) else (of_job, of_group)
    try:
        return first(known_as)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        try:
            return second(known_as)
        except ApiError as other:
            raise (error if other.status == HTTPStatus.NOT_FOUND else other) from None


def resolve(cell: Client, job: str) -> str:
    """`last` is the newest job; everything else the gateway resolves."""
    if job != LAST:
        return job
    newest = next(cell.jobs(limit=1), None)
    if newest is None:
        fail("there are no jobs yet", NOT_FOUND, "sanjaya submit -- python train.py")
    return str(newest["id"])


def resolve_sweep(cell: Client, sweep: str) -> str:
    """As `resolve`, for sweeps."""
    if sweep != LAST:
        return sweep
    newest = next(cell.sweeps(limit=1), None)
    if newest is None:
        fail("there are no sweeps yet", NOT_FOUND, "sanjaya sweep -f sweep.yaml")
    return str(newest["id"])


def id_of(cell: Client, job: str) -> str:
    """The full id."""
    return str(cell.job(resolve(cell, job))["id"])
