"""Writes what is kept of the papers' claims as pages of the documentation, one for each file in `measured/`.

python -m libs.studies.reproduce.documents
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from libs.studies.report.markdown import markdown
from libs.studies.report.page import FIGURES, Report
from libs.studies.reproduce import antman, gandiva, gavel, philly
from libs.studies.reproduce.keeping import KEPT, read_kept
from libs.studies.reproduce.reporting import Part, report_of
from libs.studies.reproduce.study import Study

FULL = "-full"
"""Ends the names of what was measured at a paper's own size."""
KEPT_STUDIES: Mapping[str, Callable[[], Study]] = {
    "antman": antman.study,
    "gandiva": gandiva.study,
    "gandiva-full": lambda: gandiva.study(gandiva.FULL),
    "gavel": gavel.study,
    "gavel-full": lambda: gavel.study(gavel.FULL),
    "philly": philly.study,
}
"""{name of the file: the study that has measured it}"""


def report_on(name: str) -> Report:
    """What is kept under a name of `KEPT_STUDIES`, judged; without what only whole results can show."""
    study, kept = KEPT_STUDIES[name](), read_kept(KEPT / f"{name}.json")
    part = Part(study, kept.size, (), kept.claims, study.judge(kept.claims))
    return report_of([part], f"sanjaya reproduce {study.paper}{' --full' if name.endswith(FULL) else ''}")


def text_of(name: str, report: Report) -> str:
    """The page."""
    return markdown(report, f"{FIGURES}/{name}-{{name}}.svg")


def write(folder: Path = KEPT) -> None:
    """Write every page with its figures; figures that no page has any more are removed."""
    figures = folder / FIGURES
    figures.mkdir(exist_ok=True)
    for old in figures.glob("*.svg"):
        old.unlink()
    for name in KEPT_STUDIES:
        report = report_on(name)
        (folder / f"{name}.md").write_text(text_of(name, report), encoding="utf-8")
        for drawing in (drawing for section in report.sections for drawing in section.drawings):
            (figures / f"{name}-{drawing.name}.svg").write_bytes(drawing.svg())


if __name__ == "__main__":
    write()
