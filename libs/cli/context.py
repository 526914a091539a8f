"""Where the command line finds its cell, and how it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, NoReturn

import typer

from libs.cli.config import configured, configured_token
from libs.client import ApiError, Client, Unreachable
from libs.contracts.bad_input import BadInput

DONE, FAILED, USAGE, NOT_FOUND, NOT_ALLOWED, UNREACHABLE = 0, 1, 2, 3, 4, 5
TIMED_OUT, INTERRUPTED, CANCELLED = 124, 130, 143

CODES = {401: NOT_ALLOWED, 403: NOT_ALLOWED, 404: NOT_FOUND, 409: FAILED, 412: FAILED, 429: FAILED}
"""{status of the gateway's answer: exit code}; of others, the 4xx are bad input and the 5xx failures."""
HINTS = {
    401: "sanjaya config show --origin; a token is given as SANJAYA_TOKEN=…, or in a context of the configuration",
    404: "sanjaya jobs, or sanjaya sweeps",
}

Gateway = Annotated[str | None, typer.Option(help="URL of the gateway.", rich_help_panel="Connection")]


def client(gateway: str | None = None) -> Client:
    """The client of the configured cell; a token comes from the configuration alone: arguments can be read by all."""
    url = configured("gateway", gateway).value
    return Client(url, configured_token(url).value or None)


def fail(message: str, code: int, hint: str = "") -> NoReturn:
    """Say what is wrong on stderr and end."""
    typer.echo(f"error: {message}" + (f"  try: {hint}" if hint else ""), err=True)
    sys.exit(code)


@contextmanager
def speaking() -> Iterator[None]:
    """Errors of the client and of files, said as sentences with the agreed exit codes."""
    try:
        yield
    except Unreachable as error:
        fail(str(error), UNREACHABLE, "sanjaya up, or --gateway URL")
    except ApiError as error:
        sys.exit(refused(error))
    except BadInput as error:
        fail(str(error), USAGE)
    except BrokenPipeError:
        os._exit(DONE)  # the reader of our output has seen enough


def refused(error: ApiError) -> int:
    """Say on stderr what the gateway has refused, and why. Returns the exit code for it."""
    for item in error.errors:
        value = f" (got {item['value']!r})" if "value" in item else ""
        where = item.get("pointer") or "request"
        typer.echo(f"error: {where}: {item['message']}{value}{_meant(item.get('did_you_mean'))}", err=True)
    if not error.errors:
        said = error.detail or error.title
        meant = "" if "did you mean" in said else _meant(error.did_you_mean)
        hint = HINTS.get(error.status, "")
        typer.echo(f"error: {said}{meant}" + (f"  try: {hint}" if hint else ""), err=True)
    return CODES.get(error.status, USAGE if error.status < 500 else FAILED)


def _meant(name: str | None) -> str:
    return f" (did you mean {name!r}?)" if name else ""
