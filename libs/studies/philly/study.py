"""The whole study of a log or a trace, and its page."""

from __future__ import annotations

from collections.abc import Sequence

from libs.kernel.words import counted
from libs.studies.philly import deciding, ending, using, waiting
from libs.studies.philly.drawings import drawing, shown
from libs.studies.philly.findings import Finding
from libs.studies.philly.observed import Observed
from libs.studies.report.page import Report, Section

PARTS = (
    waiting.table_1,
    using.table_2,
    using.table_4,
    ending.table_5,
    ending.table_6,
    waiting.figure_3,
    waiting.figure_4,
    deciding.figure_5,
    using.figure_8,
    ending.figure_9_of,
    ending.figure_10,
    deciding.section_3_2,
)
"""Tables first, then figures, by their numbers in the study; at last what stands in the text alone."""


def study(observed: Observed) -> list[Finding]:
    """Every table and figure; what the data do not hold is among them, with what is missing."""
    return [make(observed) for make in PARTS]


def report(observed: Observed, findings: Sequence[Finding], made_by: str) -> Report:
    """The page.

    Args:
        observed: what was studied.
        findings: of it.
        made_by: the command that makes the page again.
    """
    jobs = observed.jobs
    missing = [found for found in findings if not found.entries]
    gpu_h = sum(job.gpu_s or 0.0 for job in jobs) / 3600
    return Report(
        title="The Philly study of a cluster",
        subtitle=f"Tables and figures of Jeon et al. (ATC'19) for {observed.source}",
        facts=[
            (f"{len(jobs):,}", "jobs"),
            (f"{len({job.tenant for job in jobs}):,}", "virtual clusters"),
            (f"{gpu_h:,.0f}", "GPU hours"),
            (f"{len(findings) - len(missing)} of {len(findings)}", "tables and figures that the data hold"),
        ],
        sections=[_section(found) for found in findings],
        made_by=made_by,
        notes=[f"Not in the data: {', '.join(each.where for each in missing)}."] if missing else [],
    )


def _section(found: Finding) -> Section:
    text = f"Missing: {found.missing}." if found.missing else ""
    return Section(f"{found.where}: {found.title}", text, [drawing(found)] if found.entries else ())


def lines(findings: Sequence[Finding]) -> list[dict[str, object]]:
    """The rows of all findings as a command prints them; a missing one has a row that says what is missing."""
    rows: list[dict[str, object]] = []
    for found in findings:
        rows += [
            _line(found.where, each.row, each.column, each.value, each.unit.value, shown(each))
            for each in found.entries
        ]
        if found.missing:
            rows.append(_line(found.where, "–", "–", None, "", f"missing: {found.missing}"))
    return rows


def numbers(findings: Sequence[Finding]) -> dict[str, float]:
    """{`Table 1: fragmentation, >4 GPUs`: value} of all findings, as results of runs keep them."""
    return {f"{found.where}: {each.row}, {each.column}": each.value for found in findings for each in found.entries}


def _line(where: str, row: str, column: str, value: float | None, unit: str, text: str) -> dict[str, object]:
    return {"where": where, "row": row, "column": column, "value": value, "unit": unit, "shown": text}


def summary(observed: Observed, findings: Sequence[Finding]) -> str:
    """One sentence."""
    held = sum(bool(found.entries) for found in findings)
    return f"{counted(len(observed.jobs), 'job', 'jobs')}; {held} of {len(findings)} tables and figures of the study"
