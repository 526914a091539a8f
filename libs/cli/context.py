"""Where the command line finds its cell, and how it ends."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from libs.client import ApiError, Client, Unreachable
from libs.contracts.bad_input import BadInput

DONE, FAILED, USAGE, NOT_FOUND, NOT_ALLOWED, UNREACHABLE = 0, 1, 2, 3, 4, 5
TIMED_OUT, INTERRUPTED, CANCELLED = 124, 130, 143
DEFAULT_GATEWAY = "http://127.0.0.1:8420"
USER_CONFIG = Path("~/.config/sanjaya/config.toml")


@dataclass(frozen=True)
class Found:
    """A configuration value and where it came from."""

    value: str
    origin: str


def configured(name: str, flag: str | None, default: str = "") -> Found:
    """By precedence: flag, `SANJAYA_*`, ./sanjaya.toml, [tool.sanjaya] in pyproject.toml, the user's file, default."""
    if flag:
        return Found(flag, f"--{name}")
    variable = f"SANJAYA_{name.upper()}"
    if value := os.environ.get(variable):
        return Found(value, variable)
    for path, section in ((Path("sanjaya.toml"), ()), (Path("pyproject.toml"), ("tool", "sanjaya")), (USER_CONFIG, ())):
        value = _from_file(path.expanduser(), section, name)
        if value:
            return Found(value, str(path))
    return Found(default, "default")


def _from_file(path: Path, section: tuple[str, ...], name: str) -> str | None:
    try:
        content = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (tomllib.TOMLDecodeError, OSError) as error:
        fail(f"{path}: {error}", USAGE)
    for key in section:
        content = content.get(key, {})
    value = content.get(name)
    return None if value is None else str(value)


Gateway = Annotated[str | None, typer.Option(help="URL of the gateway.", rich_help_panel="Connection")]


def client(gateway: str | None = None, token: str | None = None) -> Client:
    """The client of the configured cell."""
    return Client(configured("gateway", gateway, DEFAULT_GATEWAY).value, configured("token", token).value or None)


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
        _refused(error)
    except BadInput as error:
        fail(str(error), USAGE)
    except BrokenPipeError:
        os._exit(DONE)  # the reader of our output has seen enough


def _refused(error: ApiError) -> NoReturn:
    for item in error.errors:
        value = f" (got {item['value']!r})" if "value" in item else ""
        typer.echo(f"error: {item.get('pointer') or 'request'}: {item['message']}{value}", err=True)
    suggestion = f" (did you mean {error.did_you_mean!r}?)" if error.did_you_mean else ""
    code = {401: NOT_ALLOWED, 403: NOT_ALLOWED, 404: NOT_FOUND}.get(
        error.status, USAGE if error.status < 500 else FAILED
    )
    fail(f"{error.detail or error.title}{suggestion}", code)
