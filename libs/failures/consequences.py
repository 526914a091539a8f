"""What a cause leads to: a table, as data.

The package's is `consequences.yaml`; operators change it with a file of that name among their own rules. A job that
fails of a cause that is in neither is tried again later, if the same program on the same input may succeed, else never.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

import libs.failures
from libs.contracts.bad_input import BadInput
from libs.failures.package import package_files
from libs.kernel.yaml_text import read_yaml

FILE = "consequences.yaml"
BLAME = "blame.yaml"
_ANY = "*"


class Consequence(StrEnum):
    """What becomes of a job after a failed attempt."""

    NEVER = "never"
    """It would fail again."""
    LATER = "later"
    """Tried again after a delay that doubles."""
    ELSEWHERE = "elsewhere"
    """At once, on other nodes than the one that is to blame, while others can take it."""
    MORE_MEMORY = "more_memory"
    """At once, with more memory of the host, if the job lets itself be changed."""
    ALLOCATOR = "allocator"
    """At once, with another setting of the allocator of GPU memory, if the job lets itself be changed."""
    RESUME = "resume"
    """At once, from its last checkpoint, if it is restartable."""


OUTCOMES = ("host_memory_exceeded", "node_failed")
"""Causes that no rule has, because an agent says them: outcomes of attempts (`JobExited.outcome`)."""


def read_table(name: str, text: str, causes: Collection[str]) -> dict[str, str]:
    """{cause, or beginning of causes with a `*`: consequence} of a file.

    Args:
        name: for messages.
        text: YAML, a mapping of consequence to list of causes.
        causes: those that there are.

    Raises:
        BadInput: it is no such YAML, a consequence or a cause is unknown, a cause is there twice.
    """
    read: Any = read_yaml(text, name, yaml.safe_load) or {}
    if not isinstance(read, dict):
        raise BadInput(name, "no mapping at the top", "a mapping of consequence to causes")
    table: dict[str, str] = {}
    for consequence, listed in read.items():
        if consequence not in tuple(Consequence):
            raise BadInput(name, f"unknown consequence {consequence!r}", f"one of {', '.join(Consequence)}")
        if not isinstance(listed, list) or not all(isinstance(cause, str) for cause in listed):
            raise BadInput(f"{name}: {consequence}", f"{listed!r}", "a list of causes")
        for cause in listed:
            _add(table, cause, str(consequence), f"{name}: {consequence}", causes)
    return table


def _add(table: dict[str, str], cause: str, consequence: str, where: str, causes: Collection[str]) -> None:
    begins = cause.removesuffix(_ANY)
    known = cause in causes or (cause.endswith(_ANY) and any(each.startswith(begins) for each in causes))
    if not known:
        raise BadInput(where, f"unknown cause {cause!r}", "a cause of the rules, or the beginning of some with a *")
    if cause in table:
        raise BadInput(where, f"{cause} is under {table[cause]} already", "one consequence for each cause")
    table[cause] = consequence


@cache
def package_table() -> Mapping[str, str]:
    """The table that comes with the product."""
    text = files(libs.failures).joinpath(FILE).read_text("utf-8")
    return read_table(FILE, text, (*package_files().causes, *OUTCOMES))


def consequence_of(cause: str, retry_can_help: bool, own: Mapping[str, str]) -> Consequence:
    """What a cause leads to.

    Args:
        cause: of the rules, or one of OUTCOMES.
        retry_can_help: whether the same program on the same input may succeed.
        own: the operators' table; it goes before the package's.
    """
    found = _looked_up(cause, own) or _looked_up(cause, package_table())
    return Consequence(found) if found else without_change(retry_can_help)


def without_change(retry_can_help: bool) -> Consequence:
    """What is left where a job must not be changed, or cannot be any further."""
    return Consequence.LATER if retry_can_help else Consequence.NEVER


@cache
def _blamed() -> dict[str, str]:
    named = yaml.safe_load(files(libs.failures).joinpath(BLAME).read_text("utf-8"))
    return dict.fromkeys(named, Consequence.ELSEWHERE)


def blames_hardware(cause: str) -> bool:
    """Whether a failure of this cause speaks against the GPU or the node where it happened (`blame.yaml`)."""
    return _looked_up(cause, _blamed()) is not None and consequence_of(cause, True, {}) is Consequence.ELSEWHERE


def _looked_up(cause: str, table: Mapping[str, str]) -> str | None:
    if cause in table:
        return table[cause]
    begins = [name for name in table if name.endswith(_ANY) and cause.startswith(name.removesuffix(_ANY))]
    return table[max(begins, key=len)] if begins else None
