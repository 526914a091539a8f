"""This installation: how its programs are started, and how a package is added to it."""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec

TORCH = "torch>=2.4"
"""What training jobs need; neither the command line nor a service or an agent imports it."""
DEMONSTRATION = {"torch": TORCH, "sklearn": "scikit-learn>=1.5"}
"""{module: requirement} of the demonstration's jobs: their digits come with scikit-learn. The extra `agent` is this."""


def program(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of this installation from any directory.

    The directory in which it is started stays off the module path (-P): a user's project may well have packages of the
    same names (`libs`, `services`). Processes that the program starts are not affected.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def has(module: str) -> bool:
    """Whether jobs that run on this interpreter can import a module."""
    return find_spec(module) is not None


def command_to_add(*requirements: str) -> str:
    """The shell command that installs packages beside this program; environments made by uv have no pip."""
    pip = [sys.executable, "-m", "pip"] if has("pip") else ["uv", "pip"]
    python = [] if has("pip") else ["--python", sys.executable]
    return shlex.join([*pip, "install", *python, *requirements])
