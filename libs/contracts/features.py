"""Features of nodes: what a node has or has not, whatever else it runs. Jobs go only to nodes that have what they need.

GPUs are no features, because jobs use them up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

IMAGES = "images"
"""Tasks can be run in container images."""
_DATA = "data:"
DATA_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
"""Of data that nodes have."""


def data(name: str) -> str:
    """The feature of a node that has the data set of this name."""
    return _DATA + name


def data_variable(name: str) -> str:
    """The environment variable that tells a job where the data of this name is: `SANJAYA_DATA_IMAGENET`."""
    return "SANJAYA_DATA_" + re.sub(r"[^A-Z0-9]", "_", name.upper())


def described(features: Iterable[str]) -> str:
    """Features in words: `a runner of container images and data imagenet`."""
    words = [_in_words(feature) for feature in features]
    return " and ".join(words)


def missing(needed: Sequence[str], there: Sequence[str]) -> list[str]:
    """What is needed and is not there, in the order in which it is needed."""
    return [feature for feature in needed if feature not in there]


def _in_words(feature: str) -> str:
    if feature == IMAGES:
        return "a runner of container images"
    return f"data {feature.removeprefix(_DATA)}" if feature.startswith(_DATA) else feature
