"""The rules that come with the product."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from libs.failures import rules
from libs.failures.reading import Rules, read
from libs.failures.ruleset import RuleSet


@cache
def package_files() -> Rules:
    """What the package's files of rules say."""
    found = (each for each in files(rules).iterdir() if each.name.endswith(".yaml"))
    return read(sorted((each.name, each.read_text("utf-8")) for each in found))


@cache
def package_rules() -> RuleSet:
    """The package's rules, ready for use."""
    return RuleSet(package_files())
