"""The report as one HTML file that needs nothing else: figures are inside it, styles too, scripts there are none."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from libs.studies.report.drawing import Drawing, Numbers
from libs.studies.report.verdicts import Row, Verdict

CODE = re.compile("`([^`]+)`")
STYLE = Path(__file__).with_name("page.css")
FIGURES = "figures"
"""Folder beside the page for the figures as files."""
MARKS = {
    Verdict.HOLDS: "✓ holds",
    Verdict.DIFFERS: "✗ differs",
    Verdict.INCOMPLETE: "… incomplete",
    Verdict.NOT_MEASURED: "not measured",
}
CLAIM_HEADS = ("where", "the paper says", "paper", "measured", "accepted", "")
"""Of the columns of a table of claims."""


@dataclass(frozen=True)
class Section:
    """A heading, a few words, and drawings."""

    title: str
    text: str = ""
    drawings: Sequence[Drawing] = ()
    ids: str = ""
    """What the ids of its figures begin with; on a page of several papers those of one."""


@dataclass(frozen=True)
class Claims:
    """A table of claims: what one paper says, and what came of it."""

    title: str
    text: str
    rows: Sequence[Row]
    ids: str = ""
    """What the ids of its rows begin with; on a page of several papers those of one."""


@dataclass(frozen=True)
class Report:
    """Everything that a page shows."""

    title: str
    subtitle: str = ""
    facts: Sequence[tuple[str, str]] = ()
    """What was done, in numbers: (number, of what)."""
    claims: Sequence[Claims] = ()
    sections: Sequence[Section] = ()
    made_by: str = ""
    """How to make the report again."""
    notes: Sequence[str] = field(default_factory=tuple)
    """What a reader must know before believing it."""


def write_report(report: Report, file: Path) -> list[Path]:
    """Write the page, and beside it every figure as SVG and PNG. Returns all files, the page first."""
    file.parent.mkdir(parents=True, exist_ok=True)
    figures = file.parent / FIGURES
    figures.mkdir(exist_ok=True)
    file.write_text(page(report), encoding="utf-8")
    written = [path for section in report.sections for drawing in section.drawings for path in drawing.write(figures)]
    return [file, *written]


def page(report: Report) -> str:
    """The HTML."""
    title = escape(report.title)
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title>",
            f"<style>\n{STYLE.read_text(encoding='utf-8')}</style></head><body><main>",
            f"<header><h1>{title}</h1>",
            f'<p class="lead">{escape(report.subtitle)}</p>',
            _contents(report),
            "</header>",
            *(f'<p class="note">{_words(note)}</p>' for note in report.notes),
            _facts(report.facts),
            *(_claims(table) for table in report.claims),
            *(_section(section) for section in report.sections),
            f"<footer>{escape(report.made_by)}</footer>" if report.made_by else "",
            "</main></body></html>\n",
        ]
    )


def _words(text: str) -> str:
    """HTML of a sentence, in which names of files and commands stand between backticks."""
    return CODE.sub(r"<code>\1</code>", escape(text))


def _anchor(title: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in title.lower())


def _contents(report: Report) -> str:
    titles = [table.title for table in report.claims] + [section.title for section in report.sections]
    links = (f'<a href="#{_anchor(title)}">{escape(title)}</a>' for title in titles)
    return f"<nav>{''.join(links)}</nav>" if len(titles) > 1 else ""


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    cards = (f'<div class="fact"><b>{escape(number)}</b><span>{escape(what)}</span></div>' for number, what in facts)
    return f'<div class="facts">{"".join(cards)}</div>' if facts else ""


def _claims(table: Claims) -> str:
    return "".join(
        [
            f'<h2 id="{_anchor(table.title)}">{escape(table.title)}</h2><p>{_words(table.text)}</p>',
            '<div class="claims scroll"><table><thead><tr>',
            *(f"<th>{head}</th>" for head in CLAIM_HEADS),
            "</tr></thead><tbody>",
            *(_claim(row, table.ids) for row in table.rows),
            "</tbody></table></div>",
        ]
    )


def _claim(row: Row, ids: str) -> str:
    note = f'<div class="small cause">{_words(row.note)}</div>' if row.note else ""
    setup = f'<div class="small">{_words(row.setup)}</div>' if row.setup else ""
    badge = row.verdict.value.replace(" ", "-")
    return (
        f'<tr id="{escape(ids + row.claim_id)}"><td class="source">{escape(row.where)}'
        f'<div class="small">{escape(row.claim_id)} <span class="row">· {escape(row.number)}</span></div></td>'
        f"<td>{escape(row.statement)}{setup}{note}</td>"
        f'<td><span class="number">{escape(row.paper)}</span><div class="small">{escape(row.source)}</div></td>'
        f'<td class="number">{escape(row.measured)}</td>'
        f'<td><span class="number">{escape(row.accepted)}</span><div class="small">{escape(row.reason)}</div></td>'
        f'<td><span class="badge {badge}">{MARKS[row.verdict]}</span></td></tr>'
    )


def _section(section: Section) -> str:
    text = f"<p>{_words(section.text)}</p>" if section.text else ""
    drawings = "".join(_figure(drawing, section.ids) for drawing in section.drawings)
    return f'<section><h2 id="{_anchor(section.title)}">{escape(section.title)}</h2>{text}{drawings}</section>'


def _figure(drawing: Drawing, ids: str) -> str:
    image = base64.b64encode(drawing.svg()).decode()
    numbers = f"<details><summary>Numbers</summary>{_table(drawing.numbers)}</details>" if drawing.numbers else ""
    return (
        f'<figure id="{escape(ids + drawing.name)}"><h3>{escape(drawing.title)}</h3>'
        f'<img alt="{escape(drawing.title)}. {escape(drawing.caption)}" src="data:image/svg+xml;base64,{image}">'
        f"<figcaption>{escape(drawing.caption)}</figcaption>{numbers}</figure>"
    )


def _table(numbers: Numbers) -> str:
    heads = "".join(f"<th>{escape(head)}</th>" for head in numbers.heads)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in numbers.rows)
    return f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
