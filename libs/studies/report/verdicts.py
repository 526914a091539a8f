"""What a paper says, what was measured here, and whether that agrees: rows of a report's first table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """Whether a claim holds here."""

    HOLDS = "holds"
    DIFFERS = "differs"
    INCOMPLETE = "incomplete"
    """Only some of the runs have been made: a value may be there, and is not judged."""
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One claim and what came of it."""

    claim_id: str
    number: str
    """Of the claim in the list of all claims of its paper."""
    where: str
    """Figure, table or section of the paper."""
    statement: str
    paper: str
    """The paper's number, or that it states none."""
    source: str = ""
    """Where the number is from: text, plot, or a version of the paper."""
    setup: str = ""
    measured: str
    accepted: str
    """What measured values count as agreement."""
    reason: str = ""
    """Why these."""
    verdict: Verdict
    note: str = ""
    """Why it differs, or what a claim that is not measured waits for."""
