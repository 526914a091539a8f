"""Where the command line's values come from: flags, environment, files, named contexts."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from libs.cli.own_cells import token_of
from libs.contracts.bad_input import BadInput

DEFAULT_GATEWAY = "http://127.0.0.1:8420"
DEFAULTS = {"gateway": DEFAULT_GATEWAY, "cell": "local", "token": ""}
"""{name of a value: what it is when nothing is set}."""
CONFIG = Path("~/.config/sanjaya/config.toml")
"""The user's own file; `[contexts.lab]` holds what is valid in the context `lab`."""
CHOSEN = Path("~/.config/sanjaya/context")
"""The name of the context in use, as `sanjaya context use` has written it."""


@dataclass(frozen=True)
class Found:
    """A configuration value and where it came from."""

    value: str
    origin: str


def configured(name: str, flag: str | None = None) -> Found:
    """By precedence: flag, `SANJAYA_*`, ./sanjaya.toml, [tool.sanjaya] in pyproject.toml, the user's file, default.

    In the user's file, the context in use goes before what stands outside of contexts.

    Raises:
        BadInput: one of the files cannot be read, or holds something else than a text or a number.
    """
    if flag:
        return Found(flag, f"--{name}")
    variable = f"SANJAYA_{name.upper()}"
    if value := os.environ.get(variable):
        return Found(value, variable)
    for table, origin in _tables():
        if name in table:
            if not isinstance(table[name], str | int | float):
                raise BadInput(f"{origin}: {name}", repr(table[name]), "a text")
            return Found(str(table[name]), origin)
    return Found(DEFAULTS[name], "default")


def configured_token(gateway: str) -> Found:
    """The token for a gateway: the one that is configured, else that of this user's own cell which is there.

    The precedence is that of `configured`, which knows of no gateway: `SANJAYA_TOKEN`, the files, the context in use.
    Where none of them has a token, and the gateway is one that `sanjaya up` of this user keeps on this machine, the
    file `token` in the state directory of that cell is read (`libs/cli/own_cells.py`).

    Raises:
        BadInput: a file cannot be read, or other users can read that of the token.
    """
    found = configured("token")
    own = None if found.value else token_of(gateway)
    return found if own is None else Found(own[0], str(own[1]))


def _tables() -> Iterator[tuple[dict[str, Any], str]]:
    yield _read(Path("sanjaya.toml")), "sanjaya.toml"
    project = _read(Path("pyproject.toml")).get("tool", {})
    yield (project.get("sanjaya", {}) if isinstance(project, dict) else {}), "pyproject.toml"
    own = _read(CONFIG.expanduser())
    if name := chosen_context():
        known = contexts()
        if name not in known:
            raise BadInput("context", repr(name), f"one of {CONFIG}: {', '.join(known) or 'none'}")
        yield known[name], f"{CONFIG}, context {name}"
    yield own, str(CONFIG)


def contexts() -> dict[str, dict[str, Any]]:
    """{name: its values} of the contexts in the user's file."""
    found = _read(CONFIG.expanduser()).get("contexts", {})
    if not isinstance(found, dict) or not all(isinstance(values, dict) for values in found.values()):
        raise BadInput(str(CONFIG), "contexts", "a table per context, such as [contexts.lab]")
    return found


def chosen_context() -> str | None:
    """The context in use: `SANJAYA_CONTEXT`, or the one chosen last; None: none."""
    if named := os.environ.get("SANJAYA_CONTEXT"):
        return named
    try:
        return CHOSEN.expanduser().read_text().strip() or None
    except FileNotFoundError:
        return None


def choose_context(name: str) -> None:
    """From now on use this context."""
    path = CHOSEN.expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{name}\n")


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except RecursionError:
        raise BadInput(str(path), "nested too deeply", "TOML") from None
    except (tomllib.TOMLDecodeError, OSError, UnicodeDecodeError) as error:
        raise BadInput(str(path), str(error), "TOML") from None
