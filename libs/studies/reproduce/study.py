"""A study: the claims of a paper with the runs that they need at a size, what was measured, and how it is judged."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from libs.studies.experiments.runs import Result, RunSpec
from libs.studies.report.drawing import Drawing
from libs.studies.report.verdicts import Row, Verdict
from libs.studies.reproduce.comparing import COMPARISONS, Arms, Value, deviation, exchanged
from libs.studies.reproduce.metrics import METRICS
from libs.studies.reproduce.stated import Accepted, Arm, Picture, Stated, Table

Measured = Mapping[str, Arms]
"""{claim id: {role: values}}: all that is kept of the runs of a study."""


@dataclass(frozen=True)
class Point:
    """One run of an arm."""

    at: float
    spec: RunSpec


class Plan(Protocol):
    """Makes the runs of a paper at a size."""

    @property
    def full(self) -> bool:
        """Whether it is the paper's own size."""

    def points(self, arm: Arm, seeds: int | None) -> list[Point]:
        """The runs of an arm; `seeds`: at most so many at the default size."""

    def compute(self, name: str) -> dict[str, float]:
        """{role: value} of a claim that needs no runs."""


def times(value: float) -> str:
    """`3.50×`."""
    return f"{value:.2f}×"


def percent(value: float) -> str:
    """`35.0 %`, `-2.1 %`."""
    return f"{value * 100:.1f} %"


def plain(value: float) -> str:
    """`1.250`."""
    return f"{value:.3g}"


SHOWN: dict[str, Callable[[float], str]] = {"times": times, "percent": percent, "plain": plain}


@dataclass(frozen=True)
class Claim:
    """One statement of a paper, and how it is measured at a size."""

    stated: Stated
    points: Mapping[str, Sequence[Point]]
    """{role: runs}; empty for claims that are computed or not measured."""
    computed: Callable[[], dict[str, float]] | None = None
    full: bool = False

    @property
    def claim_id(self) -> str:
        """What reports and `--only` call it."""
        return self.stated.id

    @property
    def accepted(self) -> Accepted | None:
        """At this size; None: nothing can be measured."""
        return (self.full and self.stated.accepted_full) or self.stated.accepted

    def measure(self, results: Mapping[str, Result]) -> Arms:
        """The metric of every run that has a result (`results`: by cell id); of computed claims the values."""
        if self.computed is not None:
            return {role: [Value(0.0, 0, value)] for role, value in self.computed().items()}
        metric, divisors = METRICS.get(self.stated.metric), self.points.get("isolated")
        found: dict[str, list[Value]] = {}
        for role, points in self.points.items():
            if metric is None or role == "isolated":
                continue
            for place, point in enumerate(points):
                result = results.get(point.spec.cell_id)
                beside = None if divisors is None else results.get(divisors[place].spec.cell_id)
                if result is not None and (divisors is None or beside is not None):
                    value = metric(result, beside)
                    found.setdefault(role, []).append(Value(point.at, point.spec.seed, value))
        return found

    def judge(self, arms: Arms) -> Row:
        """Compare with the paper."""
        value = self._value(arms)
        show, spread = SHOWN[self.stated.show], None
        if value is not None:
            spread = deviation(arms, self.stated.compare, self.stated.limit)
        measured = "–" if value is None else show(value)
        verdict = self._verdict(value)
        return Row(
            claim_id=self.stated.id,
            number=self.stated.row,
            where=self.stated.where,
            statement=self.stated.statement,
            paper=self.stated.paper,
            source=self.stated.source,
            setup=self.stated.setup,
            measured=measured if spread is None else f"{measured} ± {show(spread)}",
            accepted="–" if self.accepted is None else said(self.accepted, show),
            reason="" if self.accepted is None else self.accepted.reason,
            verdict=verdict,
            note=self._note(arms, verdict),
        )

    def turned(self, arms: Arms) -> Verdict:
        """The verdict when the tested policy and its baseline change places."""
        return self._verdict(self._value(exchanged(arms)))

    def _value(self, arms: Arms) -> float | None:
        if not arms.get("tested") or self._missing(arms):
            return None
        compare = COMPARISONS[self.stated.compare]
        value = compare(arms.get("base", ()), arms["tested"], self.stated.limit)
        return value if value is not None and math.isfinite(value) else None

    def _missing(self, arms: Arms) -> int:
        """Runs without a value that the claim is judged by."""
        needed = {role: points for role, points in self.points.items() if role in ("base", "tested")}
        return sum(len(points) for points in needed.values()) - sum(len(arms.get(role, ())) for role in needed)

    def _verdict(self, value: float | None) -> Verdict:
        if value is None or self.accepted is None:
            return Verdict.NOT_MEASURED
        return Verdict.HOLDS if value in self.accepted else Verdict.DIFFERS

    def _note(self, arms: Arms, verdict: Verdict) -> str:
        if verdict is Verdict.DIFFERS:
            return self.stated.cause or "The cause is not known."
        if verdict is Verdict.HOLDS or not (self.points or self.computed):
            return self.stated.waits
        missing = self._missing(arms)
        if missing:
            return f"{missing} runs have no result."
        if self.stated.compare == "sustained":
            return f"A curve does not rise through {(self.stated.limit or 0.0) / 3600:g} h between the loads looked at."
        return "Nothing that is measured has come to an end."


def said(accepted: Accepted, show: Callable[[float], str]) -> str:
    """What is accepted, in words."""
    if accepted.most is None:
        return "anything" if accepted.least is None else f"at least {show(accepted.least)}"
    return (
        f"at most {show(accepted.most)}"
        if accepted.least is None
        else (f"{show(accepted.least)} to {show(accepted.most)}")
    )


@dataclass(frozen=True)
class Chapter:
    """Drawings that need whole results: distributions, and which job held what when."""

    title: str
    text: str
    claims: Sequence[str]
    """Ids of the claims with runs that are drawn."""
    draw: Callable[[Sequence[Result]], Sequence[Drawing]]


@dataclass(frozen=True)
class Study:
    """All claims and pictures of one paper, at a size."""

    paper: str
    title: str
    text: str
    claims: Sequence[Claim]
    pictures: Sequence[Picture]
    chapters: Sequence[Chapter]

    @property
    def runs(self) -> tuple[RunSpec, ...]:
        """Every run that is needed, once each: the first seed of all claims first, as a long study may be interrupted."""
        needed = {point.spec.cell_id: point.spec for claim in self.claims for point in _points(claim)}
        return tuple(sorted(needed.values(), key=lambda spec: spec.seed))

    def only(self, prefixes: Sequence[str]) -> Study:
        """The claims with ids that begin so, and what can be drawn of them."""
        claims = [claim for claim in self.claims if claim.claim_id.startswith(tuple(prefixes))]
        chosen = {claim.claim_id for claim in claims}
        pictures = [each for each in self.pictures if chosen & {source for source, _ in sources(each)}]
        chapters = [each for each in self.chapters if chosen & set(each.claims)]
        return Study(self.paper, self.title, self.text, claims, pictures, chapters)

    def measure(self, results: Iterable[Result]) -> Measured:
        """What is kept of the results."""
        known = {result.spec.cell_id: result for result in results}
        return {claim.claim_id: arms for claim in self.claims if (arms := claim.measure(known))}

    def judge(self, measured: Measured) -> list[Row]:
        """A row for every claim."""
        return [claim.judge(measured.get(claim.claim_id, {})) for claim in self.claims]

    def runs_of(self, ids: Sequence[str]) -> list[RunSpec]:
        """The runs of these claims, once each."""
        chosen = [claim for claim in self.claims if claim.claim_id in ids]
        return list({point.spec.cell_id: point.spec for claim in chosen for point in _points(claim)}.values())


def sources(picture: Picture) -> list[tuple[str, str]]:
    """(Claim id, role) of everything that a picture draws."""
    pairs = [name.partition("/") for curve in picture.curves for name in curve.claims]
    return [(claim, role) for claim, _, role in pairs]


def study_of(paper: str, table: Table, plan: Plan, chapters: Sequence[Chapter]) -> Study:
    """The claims of a table with the runs of a plan."""
    return Study(paper, table.title, table.text, [_claim(each, plan) for each in table.claim], table.picture, chapters)


def _claim(stated: Stated, plan: Plan) -> Claim:
    points = {role: plan.points(arm, stated.seeds) for role, arm in stated.arms.items()}
    computed = (lambda: plan.compute(stated.computed)) if stated.computed else None
    return Claim(stated, points, computed, plan.full)


def _points(claim: Claim) -> Iterable[Point]:
    return (point for points in claim.points.values() for point in points)
