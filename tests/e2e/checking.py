"""What must hold of the log of every cell."""

from __future__ import annotations

from pathlib import Path

from libs.contracts.envelope import Envelope
from libs.inspect.conservation import conservation
from libs.inspect.sources import open_log
from libs.inspect.verify import verify
from services.roster import SERVICES


def checked(path: Path) -> list[Envelope]:
    """The records of control: their books balance, and every decision can be derived again."""
    said = balanced(path)
    with open_log(str(path), cell="local") as log:
        result = verify(log, SERVICES)
    assert result.ok, result.first
    return said


def balanced(path: Path) -> list[Envelope]:
    """The records of control: their books balance."""
    with open_log(str(path), cell="local") as log:
        said = [record.envelope for record in log.control()]
        assert conservation(log.control()).violations == []
    return said
