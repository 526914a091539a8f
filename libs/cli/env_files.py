"""Files of environment variables (`--env-file`, `env_file:`), in dotenv syntax. No variable is filled into another."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from libs.contracts.bad_input import BadInput

EXPECTED = 'NAME=VALUE, NAME="VALUE" or a comment'
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def variables(path: str) -> dict[str, str]:
    """What a file sets; of a name that stands there twice, the last.

    Raises:
        BadInput: the file cannot be read, or a line sets no variable; the message names the line and not its content,
            which may be a secret.
    """
    from dotenv.parser import parse_stream  # 10 ms that other commands do not need

    try:
        with Path(path).open(encoding="utf-8") as file:
            bindings = list(parse_stream(file))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(path, str(error), "a file with lines such as NAME=VALUE") from None
    found: dict[str, str] = {}
    for binding in bindings:
        blank = len(binding.original.string) - len(binding.original.string.lstrip())
        line = binding.original.line + binding.original.string[:blank].count("\n")
        if binding.error:
            raise BadInput(f"{path}:{line}", "it sets no variable", EXPECTED)
        if binding.key is None:
            continue
        if _NAME.fullmatch(binding.key) is None:
            raise BadInput(f"{path}:{line}", f"{binding.key!r} is no name of a variable", EXPECTED)
        if binding.value is None:
            raise BadInput(f"{path}:{line}", f"{binding.key} has no value", EXPECTED)
        found[binding.key] = binding.value
    return found


def all_variables(paths: Iterable[str]) -> dict[str, str]:
    """What several files set; a later file outweighs an earlier one.

    Raises:
        BadInput: as for `variables`.
    """
    found: dict[str, str] = {}
    for path in paths:
        found |= variables(path)
    return found


def filled_in(job: dict[str, Any]) -> dict[str, Any]:
    """The job of a document with the variables of its `env_file` (a path, or a list of them) in its `env`.

    What `env` says itself outweighs the files. Paths are relative to the current directory.

    Raises:
        BadInput: as for `variables`, or what stands there is no path.
    """
    if "env_file" not in job:
        return job
    given, env = job["env_file"], job.get("env", {})
    paths = [given] if isinstance(given, str) else given
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise BadInput("env_file", repr(given), "a path, or a list of paths")
    rest = {name: value for name, value in job.items() if name != "env_file"}
    return {**rest, "env": {**all_variables(paths), **env}} if isinstance(env, dict) else rest
