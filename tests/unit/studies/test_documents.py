"""What is kept of the papers' claims, as pages of the documentation."""

from __future__ import annotations

import re

import pytest

from libs.studies.report.markdown import markdown
from libs.studies.report.page import FIGURES, Claims, Report
from libs.studies.report.verdicts import Row, Verdict
from libs.studies.reproduce.documents import KEPT_STUDIES, report_on, text_of
from libs.studies.reproduce.keeping import KEPT


def row(claim_id: str, verdict: Verdict, note: str = "", measured: str = "–") -> Row:
    return Row(
        claim_id=claim_id,
        number="V-1",
        where="figure 1",
        statement="A | B.",
        paper="2×",
        measured=measured,
        accepted="1.50× to 2.50×",
        verdict=verdict,
        note=note,
    )


def test_a_page_has_a_line_per_claim_and_says_what_is_missing():
    rows = [
        row("a", Verdict.HOLDS, measured="2.00×"),
        row("b", Verdict.DIFFERS, "So it is."),
        row("c", Verdict.INCOMPLETE, "1 of 2 runs made."),
    ]
    text = markdown(
        Report("Claims", notes=["3 claims.", "Differs: b. So it is."], claims=[Claims("Paper", "Text.", rows)]),
        "{name}",
    )
    assert "3 claims.\n\n- Differs: b. So it is.\n" in text
    assert r"| figure 1<br>`a` | A \| B. | 2× | 2.00× | 1.50× to 2.50× | ✓ holds |" in text
    assert "- `c` (incomplete): 1 of 2 runs made.\n" in text
    assert text.count("So it is.") == 1, "why a claim differs stands above the table"


def test_every_kept_file_has_a_study():
    assert {file.stem for file in KEPT.glob("*.json")} == set(KEPT_STUDIES)


@pytest.mark.parametrize("name", KEPT_STUDIES)
def test_a_page_says_what_is_kept(name: str):
    assert (KEPT / f"{name}.md").read_text(encoding="utf-8") == text_of(name, report_on(name)), "run `make claims`"


def test_every_figure_is_of_a_page():
    shown = {
        link for page in KEPT.glob("*.md") for link in re.findall(r"\]\((.*?)\)", page.read_text(encoding="utf-8"))
    }
    assert shown == {f"{FIGURES}/{file.name}" for file in (KEPT / FIGURES).iterdir()}, "run `make claims`"
