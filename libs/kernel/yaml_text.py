"""YAML and JSON that people write: jobs, tokens, rules. Whatever is in such a file, there is a value or a sentence."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import yaml

from libs.contracts.bad_input import BadInput

DEEPEST = 100
"""Brackets in brackets; loaders go down a step of their stack with each, and that of C ends without a word."""

T = TypeVar("T")


def read_yaml(text: str, name: str, load: Callable[[str], T], expected: str = "YAML") -> T:
    """The content of a text.

    Args:
        name: for messages.
        load: of PyYAML, e.g. `yaml.safe_load`.
        expected: in words.

    Raises:
        BadInput: it is no YAML, or nested too deeply; with the line.
    """
    _refuse_if_deep(text, name, expected)
    try:
        return load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}" if mark is not None else name
        raise BadInput(where, " ".join(str(getattr(error, "problem", "") or error).split()), expected) from None


def _refuse_if_deep(text: str, name: str, expected: str) -> None:
    deep = 0
    with suppress(yaml.YAMLError):  # which the loader finds as well, in words of its own
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            deep += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if deep > DEEPEST:
                where = f"{name}:{event.start_mark.line + 1}" if event.start_mark is not None else name
                raise BadInput(where, f"nested more than {DEEPEST} deep", expected)
