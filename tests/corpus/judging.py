"""Verdicts on recorded logs against what the programs do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from libs.failures.records import Record, classify
from libs.failures.rule import REASONS
from libs.failures.ruleset import RuleSet
from libs.failures.verdict import Verdict
from tests.corpus.manifest import Program

WANTED = {False: 0.97, True: 0.85}
"""{held out: the part of right reasons that is wanted}."""
PARTS = {False: "the rules may be mended by", True: "held out"}
"""{held out: what a part is called}."""


@dataclass(frozen=True)
class Judged:
    """A program and the verdict on its log."""

    program: Program
    record: Record
    verdict: Verdict

    @property
    def right(self) -> bool:
        """Whether the reason is one of the labels."""
        return self.verdict.reason in self.program.reasons

    @property
    def cause_right(self) -> bool:
        """Whether the cause is one of the labels, too."""
        return self.right and (not self.program.causes or self.verdict.cause in self.program.causes)

    @property
    def line_right(self) -> bool:
        """Whether the labelled line decided; none where no line tells the reason."""
        return (self.record.deciding_line or "").strip() == self.verdict.deciding_line.strip()


def judged(programs: Iterable[Program], records: Iterable[Record], rules: RuleSet) -> list[Judged]:
    """Verdicts on the records of these programs; other records are left out."""
    by_id = {program.id: program for program in programs}
    return [Judged(by_id[each.id], each, classify(each, rules)) for each in records if each.id in by_id]


def part_right(found: Sequence[Judged]) -> float:
    """The part of right reasons; 1 where there are none."""
    return sum(each.right for each in found) / len(found) if found else 1.0


def summary(found: Sequence[Judged], held_out: bool) -> str:
    """One sentence on one of the two parts."""
    those = [each for each in found if each.program.held_out == held_out]
    return (
        f"{PARTS[held_out]}: {sum(each.right for each in those)} of {len(those)} reasons "
        f"({part_right(those):.1%}, wanted {WANTED[held_out]:.0%}), {sum(each.cause_right for each in those)} causes, "
        f"{sum(each.line_right for each in those)} deciding lines"
    )


def enough(found: Sequence[Judged]) -> bool:
    """Whether both parts reach what is wanted."""
    return all(
        part_right([each for each in found if each.program.held_out == held_out]) >= wanted
        for held_out, wanted in WANTED.items()
    )


def markdown(found: Sequence[Judged]) -> str:
    """Tables per group and per reason, and what was missed."""
    groups = sorted({each.program.group for each in found})
    reasons = [reason for reason in REASONS if any(each.program.reasons[0] == reason for each in found)]
    lines = ["| group | programs | right | held out | right |", "|---|---|---|---|---|"]
    lines += [_row(group, [each for each in found if each.program.group == group]) for group in groups]
    lines += ["", "| reason | programs | right | held out | right |", "|---|---|---|---|---|"]
    lines += [_row(f"`{name}`", [each for each in found if each.program.reasons[0] == name]) for name in reasons]
    return "\n".join([*lines, "", *map(_missed, (each for each in found if not each.right))]) + "\n"


def _row(name: str, those: Sequence[Judged]) -> str:
    cells = [name]
    for held_out in (False, True):
        part = [each for each in those if each.program.held_out == held_out]
        cells += [str(len(part)), str(sum(each.right for each in part))]
    return f"| {' | '.join(cells)} |"


def _missed(each: Judged) -> str:
    verdict = each.verdict
    line = verdict.deciding_line.strip()[:160] or "no line"
    part = ", held out" if each.program.held_out else ""
    return (
        f"- `{each.program.id}`{part}: {' or '.join(each.program.reasons)}, taken for {verdict.reason} "
        f"({verdict.rule or 'exit status'}): `{line}`"
    )
