"""Features of nodes: what a node has or has not, whatever else it runs. Jobs go only to nodes that have what they need.

GPUs are no features, because jobs use them up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

IMAGES = "images"
"""Tasks can be run in container images."""
_DATA = "data:"
_OTHER = "other_than:"
_POOL = "pool:"
TRIALS = "trial"
"""Name of the pool for trials: its nodes take trials first, and no other job (Philly study, section 6, guideline 3)."""
POOLS = (TRIALS,)
"""What a node may be set apart for."""
OUTSIDE_POOLS = "outside_pools"
"""The feature of all nodes that are not set apart. No node says that it has it."""
DATA_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
"""Of data that nodes have."""


def data(name: str) -> str:
    """The feature of a node that has the data set of this name."""
    return _DATA + name


def other_than(node_id: str) -> str:
    """The feature of all nodes but this one: for a job that is to avoid it. No node says that it has it."""
    return _OTHER + node_id


def pool(name: str) -> str:
    """The feature of a node that is set apart for this pool."""
    return _POOL + name


def side_of(there: Iterable[str]) -> str:
    """What a job needs to be placed where a node has these features: its pool, or `OUTSIDE_POOLS`."""
    return next((feature for feature in there if feature.startswith(_POOL)), OUTSIDE_POOLS)


def name_of(side: str) -> str:
    """The name of a pool, from its feature; empty for any other."""
    return side.removeprefix(_POOL) if side.startswith(_POOL) else ""


def pool_of(there: Iterable[str]) -> str:
    """The name of the pool that a node with these features is set apart for; empty: it is not."""
    return name_of(side_of(there))


def is_in_pool(there: Iterable[str]) -> bool:
    """Whether a node with these features is set apart."""
    return side_of(there) != OUTSIDE_POOLS


def data_variable(name: str) -> str:
    """The environment variable that tells a job where the data of this name is: `SANJAYA_DATA_IMAGENET`."""
    return "SANJAYA_DATA_" + re.sub(r"[^A-Z0-9]", "_", name.upper())


def described(features: Iterable[str]) -> str:
    """Features in words: `a runner of container images and data imagenet`."""
    words = [_in_words(feature) for feature in features]
    return " and ".join(words)


def missing(needed: Sequence[str], there: Sequence[str], node_id: str = "") -> list[str]:
    """What is needed and is not there, in the order in which it is needed.

    Args:
        needed: features that a job needs.
        there: features that a node says that it has.
        node_id: of that node; empty: any node that is avoided is another one.
    """
    return [feature for feature in needed if feature not in there and not _is_given(feature, there, node_id)]


def _is_given(feature: str, there: Sequence[str], node_id: str) -> bool:
    """Whether the node has what no node says that it has."""
    if feature == OUTSIDE_POOLS:
        return not is_in_pool(there)
    return feature.startswith(_OTHER) and feature != other_than(node_id)


def _in_words(feature: str) -> str:
    if feature == IMAGES:
        return "a runner of container images"
    if feature == OUTSIDE_POOLS:
        return "a place for jobs that are no trials"
    if feature.startswith(_POOL):
        return f"a place in the pool {name_of(feature)!r}"
    if feature.startswith(_OTHER):
        return f"another node than {feature.removeprefix(_OTHER)}"
    return f"data {feature.removeprefix(_DATA)}" if feature.startswith(_DATA) else feature
