"""A study: the claims of a paper with the runs that they need at a size, what was measured, and how it is judged."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from libs.kernel.words import counted, plural
from libs.studies.experiments.runs import Result, RunSpec
from libs.studies.report.drawing import Drawing
from libs.studies.report.verdicts import Row, Verdict
from libs.studies.reproduce.comparing import COMPARISONS, Arms, Value, deviation, exchanged
from libs.studies.reproduce.metrics import METRICS
from libs.studies.reproduce.stated import Accepted, Arm, Picture, Stated, Table

JUDGED = ("base", "tested")
"""Roles of the runs that a verdict needs."""
ROLES = (*JUDGED, "instead")
"""Roles of the runs that have values of their own."""
Measured = Mapping[str, Arms]
"""{claim id: {role: values}}: all that is kept of the runs of a study."""


@dataclass(frozen=True)
class Point:
    """One run of an arm."""

    at: float
    spec: RunSpec


class Measurement(NamedTuple):
    """One value of a claim, and what it is made of."""

    role: str
    point: Point
    metric: str
    """Name in `METRICS`."""
    divisor: RunSpec | None
    """The run of the isolated policy that a metric of two runs divides by."""

    @property
    def place(self) -> tuple[str, float, int]:
        """(Role, place of the curve, seed): which of the claim's values."""
        return self.role, self.point.at, self.point.spec.seed

    @property
    def origin(self) -> tuple[str, str, str]:
        """(Metric, cell id, the divisor's cell id): equal ones give equal values, whichever claim they are for."""
        return self.metric, self.point.spec.cell_id, "" if self.divisor is None else self.divisor.cell_id


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
    """`3.50×`; from a hundred on `3,369×`."""
    return f"{value:.2f}×" if abs(value) < 100 else f"{value:,.0f}×"


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
        found: dict[str, list[Value]] = {}
        for role, point, metric, divisor in self.measurements():
            result = results.get(point.spec.cell_id)
            beside = None if divisor is None else results.get(divisor.cell_id)
            if result is not None and (divisor is None or beside is not None):
                value = METRICS[metric](result, beside)
                found.setdefault(role, []).append(Value(point.at, point.spec.seed, value))
        return found

    def measurements(self) -> Iterator[Measurement]:
        """All that its runs are measured for."""
        divisors = self.points.get("isolated")
        for role, points in self.points.items():
            other = self.stated.base_metric if role == "base" else ""
            metric = other or self.stated.metric
            if metric in METRICS and role != "isolated":
                for place, point in enumerate(points):
                    yield Measurement(role, point, metric, None if divisors is None else divisors[place].spec)

    def lacking(self, arms: Arms, roles: Container[str] = ROLES) -> list[Point]:
        """The runs that have no value yet; with the runs of the isolated policy that these are divided by."""
        made = {role: {(value.at, value.seed) for value in values} for role, values in arms.items()}
        found = [
            point
            for role, points in self.points.items()
            if role in roles
            for point in points
            if (point.at, point.spec.seed) not in made.get(role, ())
        ]
        return [*found, *self.points.get("isolated", ())] if found else []

    def judge(self, arms: Arms) -> Row:
        """Compare with the paper. While runs are missing, the value is that of the seeds that have all of theirs."""
        missing = self._missing(arms)
        made = self._whole_seeds(arms) if missing else arms
        value = self._value(made)
        show, spread = SHOWN[self.stated.show], None
        if value is not None:
            spread = deviation(made, self.stated.compare, self.stated.limit)
        measured = "–" if value is None else show(value)
        verdict = self._verdict(value)
        if missing and any(arms.values()):
            verdict = Verdict.INCOMPLETE
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
            note=self._note(arms, made, verdict),
        )

    def turned(self, arms: Arms) -> Verdict:
        """The verdict when the tested policy and its baseline change places."""
        return self._verdict(None if self._missing(arms) else self._value(exchanged(arms)))

    def _value(self, arms: Arms) -> float | None:
        if not arms.get("tested"):
            return None
        compare = COMPARISONS[self.stated.compare]
        value = compare(arms.get("base", ()), arms["tested"], self.stated.limit)
        return value if value is not None and math.isfinite(value) else None

    def _needed(self) -> dict[str, Sequence[Point]]:
        """The runs that the claim is judged by."""
        return {role: points for role, points in self.points.items() if role in JUDGED}

    def _missing(self, arms: Arms) -> int:
        """Runs without a value that the claim is judged by."""
        return sum(len(points) - len(arms.get(role, ())) for role, points in self._needed().items())

    def _whole_seeds(self, arms: Arms) -> Arms:
        """The values of the seeds of which no run is missing."""
        needed = Counter(point.spec.seed for points in self._needed().values() for point in points)
        there = Counter(value.seed for role in self._needed() for value in arms.get(role, ()))
        whole = [seed for seed, runs in needed.items() if there[seed] == runs]
        return {role: [value for value in values if value.seed in whole] for role, values in arms.items()}

    def _verdict(self, value: float | None) -> Verdict:
        if value is None or self.accepted is None:
            return Verdict.NOT_MEASURED
        return Verdict.HOLDS if value in self.accepted else Verdict.DIFFERS

    def _note(self, arms: Arms, made: Arms, verdict: Verdict) -> str:
        if verdict is Verdict.DIFFERS:
            return self.stated.cause or "The cause is not known."
        if verdict is Verdict.HOLDS or not (self.points or self.computed):
            return self.stated.waits
        missing, runs = self._missing(arms), sum(map(len, self._needed().values()))
        if missing:
            seeds = sorted({value.seed for value in made.get("tested", ())})
            of_seeds = f"; the value is of {plural(len(seeds), 'seed')} {', '.join(map(str, seeds))}" if seeds else ""
            return f"{runs - missing} of {counted(runs, 'run')} made{of_seeds}."
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

    def runs(self, known: Measured | None = None) -> tuple[RunSpec, ...]:
        """Every run that is needed, once each, in an order for a long study that may be interrupted.

        What the verdicts of claims with a turn need comes first, claim by claim; then the first seed of all others.

        Args:
            known: what was measured before; runs that all have their values in it are not needed.
        """
        before = known or {}
        early = sorted((claim for claim in self.claims if claim.stated.turn is not None), key=_turn)
        first = (_by_seed(claim.lacking(before.get(claim.claim_id, {}), JUDGED)) for claim in early)
        others = _by_seed(point for claim in self.claims for point in claim.lacking(before.get(claim.claim_id, {})))
        return tuple({point.spec.cell_id: point.spec for part in (*first, others) for point in part}.values())

    def only(self, prefixes: Sequence[str]) -> Study:
        """The claims with ids that begin so, and what can be drawn of them."""
        claims = [claim for claim in self.claims if claim.claim_id.startswith(tuple(prefixes))]
        chosen = {claim.claim_id for claim in claims}
        pictures = [each for each in self.pictures if chosen & {source for source, _ in sources(each)}]
        chapters = [each for each in self.chapters if chosen & set(each.claims)]
        return Study(self.paper, self.title, self.text, claims, pictures, chapters)

    def measure(self, results: Iterable[Result], known: Measured | None = None) -> Measured:
        """What is kept of the results, added to what was measured before (`known`)."""
        by_id = {result.spec.cell_id: result for result in results}
        measured = {claim.claim_id: claim.measure(by_id) for claim in self.claims}
        if known is not None:
            measured = {claim: _together(known.get(claim, {}), arms) for claim, arms in measured.items()}
        return {claim: arms for claim, arms in measured.items() if arms}

    def shared(self, known: Measured) -> Measured:
        """What was measured, with each value also for the other claims that measure the same of the same run."""
        made = {
            (claim, role, value.at, value.seed): value.value
            for claim, arms in known.items()
            for role, values in arms.items()
            for value in values
        }
        all_of = [(claim.claim_id, each) for claim in self.claims for each in claim.measurements()]
        by_origin = {each.origin: made[claim, *each.place] for claim, each in all_of if (claim, *each.place) in made}
        found = dict(known)
        for claim, each in all_of:
            if each.origin in by_origin and (claim, *each.place) not in made:
                value = Value(each.point.at, each.point.spec.seed, by_origin[each.origin])
                found[claim] = _together(found.get(claim, {}), {each.role: [value]})
        return found

    def judge(self, measured: Measured) -> list[Row]:
        """A row for every claim."""
        return [claim.judge(measured.get(claim.claim_id, {})) for claim in self.claims]

    def runs_of(self, ids: Sequence[str]) -> list[RunSpec]:
        """The runs of these claims, once each."""
        chosen = [claim for claim in self.claims if claim.claim_id in ids]
        return list({point.spec.cell_id: point.spec for claim in chosen for point in _points(claim)}.values())


def _turn(claim: Claim) -> int:
    return claim.stated.turn or 0


def _by_seed(points: Iterable[Point]) -> list[Point]:
    return sorted(points, key=lambda point: point.spec.seed)


def _together(earlier: Arms, later: Arms) -> Arms:
    """The values of both, by place and seed; of two for one run the later."""
    joined: dict[str, list[Value]] = {}
    for role in dict.fromkeys([*earlier, *later]):
        values = {(each.at, each.seed): each for arms in (earlier, later) for each in arms.get(role, ())}
        joined[role] = sorted(values.values(), key=lambda each: (each.at, each.seed))
    return joined


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
