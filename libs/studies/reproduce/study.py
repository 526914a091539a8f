"""What a claim is, and how it is judged."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from libs.studies.experiments.runs import Result, RunSpec
from libs.studies.report.drawing import Drawing
from libs.studies.report.verdicts import Row, Verdict

Roles = Mapping[str, Sequence[Result]]
"""{role in a comparison: results}, one per seed (and load)."""
NOT_STATED = "not stated"


@dataclass(frozen=True)
class Accepted:
    """Measured values that count as agreement."""

    least: float = -math.inf
    most: float = math.inf

    def __contains__(self, value: float) -> bool:
        return self.least <= value <= self.most

    def said(self, show: Callable[[float], str]) -> str:
        """In words."""
        if math.isinf(self.most):
            return f"at least {show(self.least)}"
        if math.isinf(self.least):
            return f"at most {show(self.most)}"
        return f"{show(self.least)} to {show(self.most)}"


def times(value: float) -> str:
    """`3.5×`."""
    return f"{value:.2f}×"


def percent(value: float) -> str:
    """`35 %`."""
    return f"{value * 100:.1f} %"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One statement of a paper.

    What is accepted is chosen by us, wide enough for a smaller cluster and another table of rates: the direction
    must be the paper's and the effect must be clearly there.
    """

    claim_id: str
    source: str
    """Figure, table or section."""
    statement: str
    paper: str = NOT_STATED
    """The paper's number."""
    runs: Mapping[str, Sequence[RunSpec]] = field(default_factory=dict)
    """{role: runs}; empty: the claim cannot be measured here."""
    measure: Callable[[Roles], float | None] = lambda roles: None
    show: Callable[[float], str] = times
    accepted: Accepted = Accepted()
    note: str = ""
    """What is different here, or why nothing can be measured."""

    def judge(self, results: Mapping[str, Result]) -> Row:
        """Measure and compare. `results` is {cell id: result} of whatever has been run."""
        roles = {
            role: [results[spec.cell_id] for spec in specs if spec.cell_id in results]
            for role, specs in self.runs.items()
        }
        missing = sum(len(specs) for specs in self.runs.values()) - sum(len(found) for found in roles.values())
        value = self.measure(roles) if self.runs and not missing else None
        note = self.note
        if value is not None and not math.isfinite(value):
            value = None
        if self.runs and value is None:
            note = f"{note} {f'{missing} runs have no result.' if missing else 'No job has ended.'}".strip()
        return Row(
            claim_id=self.claim_id,
            source=self.source,
            statement=self.statement,
            paper=self.paper,
            measured="–" if value is None else self.show(value),
            accepted=self.accepted.said(self.show) if self.runs else "–",
            verdict=self._verdict(value),
            note=note,
        )

    def _verdict(self, value: float | None) -> Verdict:
        if value is None:
            return Verdict.NOT_MEASURED
        return Verdict.HOLDS if value in self.accepted else Verdict.DIFFERS


@dataclass(frozen=True)
class Chapter:
    """A part of the report: drawings made from the results of some runs."""

    title: str
    text: str
    runs: Sequence[RunSpec]
    draw: Callable[[Sequence[Result]], Sequence[Drawing]]


@dataclass(frozen=True)
class Study:
    """All claims and pictures of one paper."""

    title: str
    claims: Sequence[Claim]
    chapters: Sequence[Chapter]

    @property
    def runs(self) -> tuple[RunSpec, ...]:
        """Every run that is needed, once each, in order of first need."""
        needed = [spec for claim in self.claims for specs in claim.runs.values() for spec in specs]
        needed += [spec for chapter in self.chapters for spec in chapter.runs]
        return tuple({spec.cell_id: spec for spec in needed}.values())

    def only(self, prefixes: Sequence[str]) -> Study:
        """The claims with ids that begin so, and the pictures that show nothing but their runs."""
        claims = [claim for claim in self.claims if claim.claim_id.startswith(tuple(prefixes))]
        needed = {spec.cell_id for claim in claims for specs in claim.runs.values() for spec in specs}
        chapters = [c for c in self.chapters if any(spec.cell_id in needed for spec in c.runs)]
        return Study(self.title, claims, chapters)

    def judge(self, results: Iterable[Result]) -> list[Row]:
        """A row for every claim."""
        known = {result.spec.cell_id: result for result in results}
        return [claim.judge(known) for claim in self.claims]
