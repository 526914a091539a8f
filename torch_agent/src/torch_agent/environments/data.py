"""Data that the operator gives a name on this node: `sanjaya agent --data imagenet=/mnt/imagenet:ro`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from libs.contracts.features import DATA_NAME, data_variable

_OPTION = re.compile(r"(?P<name>[^=]+)=(?P<path>/[^:]*)(?P<ro>:ro)?")


class NoSuchData(Exception):
    """The node has no data of this name."""


@dataclass(frozen=True)
class Data:
    """Where the data of one name is."""

    path: Path
    read_only: bool
    """In images; without one the rights of the files decide."""


def data_of(text: str) -> tuple[str, Data]:
    """A name and what it means, from `NAME=PATH[:ro]`.

    Raises:
        ValueError: it is no such text, or there is no such folder; the message says what was expected.
    """
    found = _OPTION.fullmatch(text)
    if found is None or re.match(DATA_NAME, found["name"]) is None:
        raise ValueError(f"{text!r}: expected NAME=PATH or NAME=PATH:ro, such as imagenet=/mnt/imagenet:ro")
    path = Path(found["path"])
    if not path.exists():
        raise ValueError(f"{text!r}: there is no {path}")
    return found["name"], Data(path, found["ro"] is not None)


def wanted(known: Mapping[str, Data], names: Iterable[str]) -> dict[str, Data]:
    """Those of these names.

    Raises:
        NoSuchData: the node has none of one of them; the message says which it has.
    """
    found = {}
    for name in names:
        if name not in known:
            raise NoSuchData(f"no data {name} on this node; it has {', '.join(sorted(known)) or 'none'}")
        found[name] = known[name]
    return found


def data_variables(found: Mapping[str, Data], targets: Mapping[str, str]) -> dict[str, str]:
    """What tells a job where its data is.

    Args:
        targets: {name: path in the job's image}; empty or not there: the data is where it is on the node.
    """
    return {data_variable(name): targets.get(name) or str(data.path) for name, data in found.items()}
