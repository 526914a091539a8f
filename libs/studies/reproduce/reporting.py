"""The report of one or more studies: in words how many claims hold, then all claims, then the pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from libs.kernel.words import counted
from libs.studies.experiments.runs import Result
from libs.studies.report.overview import facts
from libs.studies.report.page import Claims, Report, Section
from libs.studies.report.verdicts import Row, Verdict
from libs.studies.reproduce.pictures import drawing_of
from libs.studies.reproduce.stated import NOT_STATED
from libs.studies.reproduce.study import Measured, Study


@dataclass(frozen=True)
class Part:
    """What came of one study."""

    study: Study
    size: str
    """In words."""
    results: Sequence[Result]
    measured: Measured
    rows: Sequence[Row]
    earlier: int = 0
    """Runs of which only the values are there, from an earlier study."""


def report_of(parts: Sequence[Part], made_by: str) -> Report:
    """One page for all of them."""
    rows = [row for part in parts for row in part.rows]
    results = [result for part in parts for result in part.results]
    earlier = sum(part.earlier for part in parts) if results else 0
    alone = len(parts) == 1
    return Report(
        title=f"{_listed([part.study.title for part in parts])}: claims, measured",
        subtitle="What the papers state, what simulation gives here, and whether that agrees.",
        facts=facts(results) if results else (),
        notes=[_counted(rows), *_from_before(earlier), *(note for part in parts for note in _notes(part, alone=alone))],
        claims=[_claims(part, alone=alone) for part in parts],
        sections=[section for part in parts for section in _sections(part, alone=alone)],
        made_by=made_by,
    )


def _listed(names: Sequence[str]) -> str:
    """`A`, `A and B`, `A, B and C`."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _notes(part: Part, *, alone: bool) -> list[str]:
    """Of several papers, each has its own count, and its rows its name: their figures and tables are called alike."""
    if alone:
        return _differing(part.rows, "")
    return [f"{part.study.title}: {_counted(part.rows)}", *_differing(part.rows, f"{part.study.title}, ")]


def _counted(rows: Sequence[Row]) -> str:
    number = {verdict: sum(row.verdict is verdict for row in rows) for verdict in Verdict}
    measured, unfinished = number[Verdict.HOLDS] + number[Verdict.DIFFERS], number[Verdict.INCOMPLETE]
    sentences = (
        f"{len(rows)} claims. {measured} are measured: {number[Verdict.HOLDS]} of these hold, "
        f"{number[Verdict.DIFFERS]} differ.",
        f"Of {unfinished} only some of the runs are made." if unfinished else "",
        f"{number[Verdict.NOT_MEASURED]} are not measured and say what they wait for.",
    )
    return " ".join(filter(None, sentences))


def _from_before(runs: int) -> list[str]:
    """The numbers at the head and pictures of single runs need whole results."""
    known = f"{counted(runs, 'run')} of an earlier study, of which only values are kept"
    return [f"The numbers above and pictures of single runs leave out {known}."] if runs else []


def _differing(rows: Sequence[Row], paper: str) -> list[str]:
    return [
        f"Differs: {paper}{row.claim_id} ({row.where}): {_stated(row)}, measured {row.measured}. {row.note}"
        for row in rows
        if row.verdict is Verdict.DIFFERS
    ]


def _stated(row: Row) -> str:
    return "the paper states no number" if row.paper == NOT_STATED else f"the paper has {row.paper}"


def _ids(part: Part, *, alone: bool) -> str:
    """Of several papers, each has ids of its own: claims and figures of two may be called alike."""
    return "" if alone else f"{part.study.paper}-"


def _claims(part: Part, *, alone: bool) -> Claims:
    text = f"{part.study.text} Here: {part.size}."
    return Claims(part.study.title, text, part.rows, _ids(part, alone=alone))


def _sections(part: Part, *, alone: bool) -> list[Section]:
    paper, ids = "" if alone else f"{part.study.title} · ", _ids(part, alone=alone)
    drawn = [
        Section(f"{paper}{picture.title}", picture.text, [drawing], ids)
        for picture in part.study.pictures
        if (drawing := drawing_of(picture, part.measured)) is not None
    ]
    known = {result.spec.cell_id: result for result in part.results}
    for chapter in part.study.chapters:
        own = [known[spec.cell_id] for spec in part.study.runs_of(chapter.claims) if spec.cell_id in known]
        drawings = chapter.draw(own) if own else []
        if drawings:
            drawn.append(Section(f"{paper}{chapter.title}", chapter.text, drawings, ids))
    return drawn
