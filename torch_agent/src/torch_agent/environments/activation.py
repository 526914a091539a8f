"""Environments of the node that a job names: `--python`, `--venv`, `--conda`. Found, and made active by variables.

A shell's `activate` is a few variables, and they are set here as it would set them. Scripts that a conda environment
has for its activation (`etc/conda/activate.d`) are not run.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from libs.contracts.placement import LaunchTask

_ROOTS = ("miniforge3", "miniconda3", "anaconda3", "mambaforge", "micromamba", "conda")
_LISTED = 8
"""Environments that a message names at most."""


class NotThere(Exception):
    """The node does not have the environment; the message says what it has."""


@dataclass(frozen=True)
class Activation:
    """What makes an environment the active one."""

    python: str
    """Its interpreter."""
    path: tuple[str, ...] = ()
    """Folders that stand first on PATH."""
    variables: Mapping[str, str] = field(default_factory=dict)
    drops: tuple[str, ...] = ()
    """Variables that must not be there."""

    def over(self, other: Activation) -> Activation:
        """This environment made on top of another one."""
        return Activation(
            self.python, (*self.path, *other.path), {**other.variables, **self.variables}, (*self.drops, *other.drops)
        )


def of_venv(folder: Path) -> Activation:
    """A virtual environment.

    Raises:
        NotThere: there is none in this folder.
    """
    python = folder / "bin" / "python"
    if not os.access(python, os.X_OK):
        beside = [path.parent.parent for path in sorted(folder.parent.glob("*/bin/python"))]
        raise NotThere(f"no virtual environment at {folder}: it has no bin/python{_there('beside it', beside)}")
    return Activation(str(python), (str(python.parent),), {"VIRTUAL_ENV": str(folder)}, ("PYTHONHOME",))


def of_python(python: Path, commands: Path) -> Activation:
    """An interpreter.

    Args:
        commands: folder that gets `python` and `python3`, which run it; beside it are the interpreter's own commands.

    Raises:
        NotThere: there is no such program.
    """
    if not python.is_file() or not os.access(python, os.X_OK):
        beside = sorted(path for path in python.parent.glob("python*") if os.access(path, os.X_OK))
        raise NotThere(f"no interpreter at {python}{_there('beside it', beside)}")
    commands.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in ("python", "python3"):
        # No link: an interpreter of a virtual environment finds its packages by the path that it is called by.
        (commands / name).write_text(f'#!/bin/sh\nexec {shlex.quote(str(python))} "$@"\n')
        (commands / name).chmod(0o755)
    return Activation(str(python), (str(commands), str(python.parent)), {}, ("PYTHONHOME",))


def of_conda(name: str, prefixes: Mapping[str, Path]) -> Activation:
    """A conda environment.

    Args:
        name: its name, or its prefix.
        prefixes: {name: prefix} of those that the node has.

    Raises:
        NotThere: it is not there, or has no interpreter.
    """
    prefix = Path(name) if name.startswith("/") else prefixes.get(name)
    if prefix is None or not os.access(prefix / "bin" / "python", os.X_OK):
        what = f"no conda environment {name}" if prefix is None else f"no conda environment with Python at {prefix}"
        raise NotThere(f"{what}{_there('here', sorted(prefixes))}")
    variables = {
        **_variables_of(prefix),
        "CONDA_PREFIX": str(prefix),
        "CONDA_DEFAULT_ENV": name,
        "CONDA_SHLVL": "1",
    }
    return Activation(str(prefix / "bin" / "python"), (str(prefix / "bin"),), variables, ("PYTHONHOME",))


def conda_prefixes(environ: Mapping[str, str]) -> dict[str, Path]:
    """{name: prefix} of the node's conda environments, as far as conda tells without being run.

    Args:
        environ: of the agent: the home directory, and where conda is.
    """
    home = Path(environ.get("HOME") or "/")
    roots = [home / name for name in _ROOTS] + [Path("/opt") / name for name in _ROOTS]
    command = environ.get("CONDA_EXE") or shutil.which("conda", path=environ.get("PATH"))
    roots += [Path(command).resolve().parent.parent] if command else []
    roots += [Path(environ["MAMBA_ROOT_PREFIX"])] if environ.get("MAMBA_ROOT_PREFIX") else []
    folders = [root / "envs" for root in roots] + [home / ".conda" / "envs"]
    folders += [Path(folder) for folder in environ.get("CONDA_ENVS_PATH", "").split(":") if folder]
    known = [("base", root) for root in roots]
    known += [(path.name, path) for folder in folders for path in sorted(folder.glob("*"))]
    known += [(path.name, path) for path in _remembered(home)]
    # Of a name that stands there twice the first counts, as with conda.
    return {name: prefix for name, prefix in reversed(known) if (prefix / "conda-meta").is_dir()}


def activation_of(order: LaunchTask, default: str, commands: Path, environ: Mapping[str, str]) -> Activation:
    """The environment that the job names; without one that of the interpreter `default`, which changes nothing.

    Raises:
        NotThere: the node does not have it.
    """
    if order.venv:
        return of_venv(Path(order.venv))
    if order.conda:
        return of_conda(order.conda, conda_prefixes(environ))
    if order.python:
        return of_python(Path(order.python), commands)
    return Activation(default)


def with_variables(activation: Activation, variables: Mapping[str, str]) -> Activation:
    """The same with more variables."""
    return replace(activation, variables={**activation.variables, **variables})


def _remembered(home: Path) -> list[Path]:
    """Prefixes outside of conda's own folders, which it lists."""
    try:
        lines = (home / ".conda" / "environments.txt").read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    return [Path(line) for line in lines if line.startswith("/")]


def _variables_of(prefix: Path) -> dict[str, str]:
    """Those that were set for the environment (`conda env config vars set`)."""
    try:
        found = json.loads((prefix / "conda-meta" / "state").read_text())["env_vars"]
        return {str(name): str(value) for name, value in found.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}


def _there(where: str, found: Iterable[object]) -> str:
    listed = [str(each) for each in found]
    more = f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    return f"; {where}: {', '.join(listed[:_LISTED])}{more}" if listed else f"; {where}: none"
