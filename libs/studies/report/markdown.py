"""The report as Markdown, for documentation that is read in the repository: figures are files beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from libs.studies.report.drawing import Drawing
from libs.studies.report.page import CLAIM_HEADS, MARKS, Claims, Report, Section
from libs.studies.report.verdicts import Verdict


def markdown(report: Report, figures: str) -> str:
    """The text.

    Args:
        report: what the page shows; its facts are left out.
        figures: path of a figure as SVG, relative to the page, with `{name}` in the place of its name.
    """
    parts = [
        f"# {report.title}",
        report.subtitle,
        *report.notes[:1],
        "\n".join(f"- {note}" for note in report.notes[1:]),
        *(part for table in report.claims for part in _claims(table)),
        *(part for section in report.sections for part in _section(section, figures)),
        f"Made by `{report.made_by}`." if report.made_by else "",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _claims(table: Claims) -> list[str]:
    """All rows; below them what those that do not differ have to say, because what differs is explained above."""
    rows = [
        (f"{row.where}<br>`{row.claim_id}`", row.statement, row.paper, row.measured, row.accepted, MARKS[row.verdict])
        for row in table.rows
    ]
    said = [row for row in table.rows if row.note and row.verdict is not Verdict.DIFFERS]
    remarks = "\n".join(f"- `{row.claim_id}` ({row.verdict.value}): {row.note}" for row in said)
    return [f"## {table.title}", table.text, _table(CLAIM_HEADS, rows), remarks]


def _section(section: Section, figures: str) -> list[str]:
    drawn = [part for drawing in section.drawings for part in _drawing(drawing, figures)]
    return [f"## {section.title}", section.text, *drawn]


def _drawing(drawing: Drawing, figures: str) -> list[str]:
    picture = f"![{drawing.title}]({figures.format(name=drawing.name)})"
    numbers = drawing.numbers
    return [picture, drawing.caption, "" if numbers is None else _table(numbers.heads, numbers.rows)]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", r"\|")
