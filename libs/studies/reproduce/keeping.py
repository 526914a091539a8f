"""What a study has measured, as a file (`measured/1`, JSON): enough to judge every claim again without its runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import msgspec

from libs.contracts.bad_input import BadInput
from libs.studies.reproduce.comparing import Value
from libs.studies.reproduce.study import Measured

FORMAT = "measured/1"
KEPT = Path(__file__).with_name("measured")
"""What the program's own tests and documentation judge: a file per paper and size."""


def write_measured(measured: Measured, size: str, file: Path) -> None:
    """Write the values of every claim, one line each; the same values give the same bytes."""
    lines = [f"  {json.dumps(claim)}: {json.dumps(arms)}" for claim, arms in measured.items()]
    head = f'{{"format": "{FORMAT}", "size": {json.dumps(size, ensure_ascii=False)}, "claims": {{\n'
    file.write_text(head + ",\n".join(lines) + "\n}}\n", encoding="utf-8")


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The document."""

    format: Literal["measured/1"]
    size: str
    """In words."""
    claims: dict[str, dict[str, list[Value]]]


def read_kept(file: Path) -> Kept:
    """The document that `write_measured` has written.

    Raises:
        BadInput: the file cannot be read.
    """
    try:
        return msgspec.json.decode(file.read_bytes(), type=Kept)
    except (OSError, msgspec.MsgspecError) as error:
        raise BadInput(str(file), str(error), f"a {FORMAT} document") from None


def read_measured(file: Path, size: str) -> Measured:
    """What was measured at this size.

    Raises:
        BadInput: the file cannot be read, or has been measured at another size.
    """
    found = read_kept(file)
    if found.size != size:
        raise BadInput(f"{file}: $.size", repr(found.size), repr(size))
    return found.claims
