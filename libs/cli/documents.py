"""YAML and JSON of users' files; loaded only where there is such a file."""

from __future__ import annotations

import re
from typing import Any

import yaml

from libs.contracts.bad_input import BadInput
from libs.kernel.yaml_text import read_yaml

EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")


class Yaml(yaml.SafeLoader):
    """Reads `1e-4` as a number, as YAML 1.2 says; by itself PyYAML wants `1.0e-4`, and takes the rest for text."""


Yaml.add_implicit_resolver("tag:yaml.org,2002:float", EXPONENT, list("-+0123456789"))


def document(text: str, path: str, expected: str) -> dict[str, Any]:
    """The one object in a text.

    Args:
        path: where the text comes from, for messages.
        expected: in words.

    Raises:
        BadInput: it is no YAML or JSON, or no object.
    """
    document = read_yaml(text, path, lambda whole: yaml.load(whole, Yaml), "YAML or JSON")
    if not isinstance(document, dict):
        raise BadInput(path, f"a {type(document).__name__}", expected)
    return document
