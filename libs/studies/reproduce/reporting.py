"""The report of a study: claims first, then the pictures of runs that have results."""

from __future__ import annotations

from collections.abc import Sequence

from libs.studies.experiments.runs import Result
from libs.studies.report.overview import facts
from libs.studies.report.page import Report, Section
from libs.studies.report.verdicts import Row
from libs.studies.reproduce.study import Study


def report_of(study: Study, results: Sequence[Result], rows: Sequence[Row], subtitle: str, made_by: str) -> Report:
    """Everything that the page shows; `rows` are the judged claims."""
    known = {result.spec.cell_id: result for result in results}
    sections = []
    for chapter in study.chapters:
        own = [known[spec.cell_id] for spec in chapter.runs if spec.cell_id in known]
        if own:
            sections.append(Section(chapter.title, chapter.text, chapter.draw(own)))
    return Report(study.title, subtitle, facts(results), rows, sections, made_by)
