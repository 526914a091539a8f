"""What a paper says, what was measured here, and whether that agrees: rows of a report's first table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """Whether a claim holds here."""

    HOLDS = "holds"
    DIFFERS = "differs"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Row:
    """One claim and what came of it."""

    claim_id: str
    source: str
    """Figure, table or section of the paper."""
    statement: str
    paper: str
    """The paper's number, or that it states none."""
    measured: str
    accepted: str
    """What measured values count as agreement."""
    verdict: Verdict
    note: str = ""
    """What is different here, or why it could not be measured."""
