"""The rules that come with the product."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from libs.failures.reading import Rules, read
from libs.failures.ruleset import RuleSet

FOLDER = "libs.failures.rules"


@cache
def package_files() -> Rules:
    """What the package's files of rules say."""
    texts = sorted((each.name, each.read_text("utf-8")) for each in files(FOLDER).iterdir() if each.name.endswith(".yaml"))
    return read(texts)


@cache
def package_rules() -> RuleSet:
    """The package's rules, ready for use."""
    return RuleSet(package_files())
