"""Pictures and pages: what they are made from, and that they hold what they should."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from libs.studies.experiments.runs import Result, RunSpec
from libs.studies.generators.gavel import GavelWorkload
from libs.studies.report.completion import against, completion_times_h, distribution, round_minutes
from libs.studies.report.holdings import intervals_of
from libs.studies.report.intervals import Interval, from_rows, held_by, parts, to_rows
from libs.studies.report.overview import overview
from libs.studies.report.page import Claims, Report, Section, page, write_report
from libs.studies.report.style import POLICY_COLOURS, look
from libs.studies.report.timelines import MOST_GPUS, common_beginning, gantt, shares, utilisation
from libs.studies.report.verdicts import Row, Verdict
from libs.testing.builders import Scenario
from services.roster import SERVICES

GPUS = {"v100": 2, "k80": 1}


def interval(job_id: str, start_s: float, end_s: float, gpu: int = 0, **more: Any) -> Interval:
    values = {"tenant": "a", "node_id": "v100-000", "gpu_type": "v100", **more}
    return Interval(job_id=job_id, gpu_index=gpu, start_s=start_s, end_s=end_s, **values)


SOME = [
    interval("job-1", 0, 3600),
    interval("job-2", 0, 1800, gpu=1, tenant="b"),
    interval("job-3", 1800, 3600, gpu=1, tenant="b"),
    interval("job-4", 1800, 3600, gpu=1, tenant="a"),
    interval("job-5", 0, 1800, tenant="b", node_id="k80-000", gpu_type="k80"),
]


def result(policy: str = "fifo", load: float = 1.0, seed: int = 0, jct_h: float = 2.0, **options: Any) -> Result:
    spec = RunSpec(policy=policy, workload=GavelWorkload(jobs_per_hour=load), seed=seed, **options)
    rows = [{"jct_s": 3600 * jct_h * part, "status": "SUCCEEDED"} for part in (0.5, 1.0, 1.5)]
    summary = {"jobs": 3, "completed": 3, "avg_jct_s": 3600 * jct_h, "wall_s": 60.0, "simulated_s": 1e6}
    return Result(spec, {"jobs": rows, "summary": summary})


def test_gpus_that_are_shared_count_once():
    cut = parts(SOME)
    assert sum((part.end_s - part.start_s) * part.ratio for part in cut) == 3600 + 3600 + 1800
    assert {part.ratio for part in cut if part.interval.job_id in ("job-3", "job-4")} == {0.5}


def test_three_jobs_on_a_gpu_come_and_go():
    cut = parts([interval("x", 0, 30), interval("y", 10, 30), interval("z", 20, 40), interval("none", 5, 5)])
    seen = [(part.interval.job_id, part.start_s, part.end_s, round(part.ratio, 3)) for part in cut]
    assert seen == [
        ("x", 0, 10, 1.0),
        ("x", 10, 20, 0.5),
        ("y", 10, 20, 0.5),
        ("x", 20, 30, 0.333),
        ("y", 20, 30, 0.333),
        ("z", 20, 30, 0.333),
        ("z", 30, 40, 1.0),
    ]


def test_means_in_bins():
    held = held_by(SOME, lambda each: each.tenant, np.array([0.0, 900.0, 2700.0, 3600.0]))
    assert held["a"] == pytest.approx([1.0, 1.25, 1.5])
    assert held["b"] == pytest.approx([2.0, 1.25, 0.5])


def test_intervals_survive_being_written():
    assert from_rows(to_rows(SOME)) == SOME


def test_intervals_of_a_run():
    scenario = Scenario().servers(v100=2).job("a", runs_s=100).job("b", gpus=2, at=10, runs_s=50)
    simulation = scenario.options(keep_log=True).run(SERVICES)
    found = intervals_of(simulation.log.control, simulation.cluster, simulation.now_s)
    held_s = {"a": 0.0, "b": 0.0}
    for each in found:
        held_s[each.job_id] += each.end_s - each.start_s
        assert each.gpu_type == "v100" and each.node_id == "v100-000"
    assert held_s == {job_id: job.gpu_s for job_id, job in simulation.outcomes.items()}


def svg_texts(drawing) -> str:
    """The SVG, which has to be XML."""
    text = drawing.svg().decode()
    ElementTree.fromstring(text)
    return text


def test_a_curve_per_policy_with_its_seeds():
    results = [result(load=load, seed=seed, jct_h=load * (2 + seed)) for load in (1.0, 2.0) for seed in (0, 1)]
    results += [result("max_min_fairness", load) for load in (1.0, 2.0)]
    drawing = against(results)
    assert drawing.numbers is not None
    assert drawing.numbers.heads == ["policy", "1", "2"]
    assert drawing.numbers.rows == [["fifo", "2.50", "5.00"], ["max_min_fairness", "2.00", "2.00"]]
    assert "2 seeds" in drawing.caption
    (axes,) = drawing.figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("load (jobs per hour)", "average completion time (hours)")
    assert axes.get_yscale() == "linear"
    lines = {line.get_label(): line.get_color() for line in axes.get_lines()}
    assert lines["fifo"] == POLICY_COLOURS["fifo"] != lines["max_min_fairness"]
    svg_texts(drawing)


def test_wide_ranges_get_a_logarithmic_axis():
    drawing = against([result(load=1.0, jct_h=1.0), result(load=2.0, jct_h=100.0)])
    assert drawing.figure.axes[0].get_yscale() == "log"


def test_curves_against_other_things_and_results_without_values():
    results = [result(round_s=60.0 * minutes, jct_h=minutes) for minutes in (6, 12)]
    results.append(Result(results[0].spec, {"jobs": [], "summary": {"avg_jct_s": None}}))
    drawing = against(results, place=round_minutes, place_unit="length of a round (minutes)")
    assert drawing.numbers is not None and drawing.numbers.rows == [["fifo", "6.00", "12.00"]]


def test_distributions_pool_seeds():
    drawing = distribution([result(seed=0), result(seed=1), result("allox", jct_h=4.0)])
    assert drawing.numbers is not None
    assert drawing.numbers.rows[0] == ["fifo", "6", "2.00", "3.00", "3.00", "2.00"]
    assert [line.get_label() for line in drawing.figure.axes[0].get_lines()] == ["fifo", "allox"]
    assert completion_times_h(result()) == [1.0, 2.0, 3.0]


def test_variants_of_a_policy_look_alike_and_not_the_same():
    looks = [look("fifo"), look("fifo, agnostic"), look("fifo, space sharing"), look("fifo, ideal")]
    assert len({(each.colour, each.line, each.marker) for each in looks}) == 4
    assert looks[0].colour == POLICY_COLOURS["fifo"]
    assert len(set(POLICY_COLOURS.values())) == len(POLICY_COLOURS)


def test_utilisation_has_a_band_per_gpu_type_and_one_for_all():
    drawing = utilisation(SOME, GPUS)
    assert len(drawing.figure.axes) == 3
    assert drawing.numbers is not None
    assert drawing.numbers.rows == [["v100", "2", "100.0%"], ["k80", "1", "50.0%"], ["all", "3", "83.3%"]]


def test_shares_with_and_without_what_is_owed():
    plain, owed = shares(SOME, GPUS), shares(SOME, GPUS, {"a": 1.0, "b": 3.0})
    assert plain.numbers is not None and owed.numbers is not None
    assert plain.numbers.rows == [["a", "41.7%"], ["b", "41.7%"]]
    assert owed.numbers.rows == [["a", "41.7%", "25.0%"], ["b", "41.7%", "75.0%"]]


def bars(drawing) -> list[tuple[float, float]]:
    """(width, height) of each."""
    (collection,) = drawing.figure.axes[0].collections
    boxes = [path.get_extents() for path in collection.get_paths()]
    return sorted((round(box.width, 2), round(box.height, 2)) for box in boxes)


def test_rounds_are_bars_and_shared_gpus_half_of_them():
    drawing = gantt(SOME, round_s=360)
    assert bars(drawing) == [(30.0, 0.41), (30.0, 0.41), (30.0, 0.82), (30.0, 0.82), (60.0, 0.82)], "minutes"
    assert [label.get_text() for label in drawing.figure.axes[0].get_yticklabels()] == ["v100-000", "k80-000"]
    assert "without job-" in drawing.caption and "6 minutes" in drawing.caption


def test_the_busiest_rounds_of_a_long_run_are_shown():
    lonely = [interval("long", 0, 1e6)]
    crowd = [interval(f"j{n}", 5e5 + 100 * n, 5e5 + 100 * n + 90, gpu=1) for n in range(20)]
    first, last = gantt(lonely + crowd, round_s=100).figure.axes[0].get_xlim()
    assert (round(first * 60), round(last * 60)) == (500_000, 504_000)
    chosen = gantt(lonely + crowd, begin_s=0, end_s=600)
    assert chosen.figure.axes[0].get_xlim() == (0, 10)
    assert chosen.numbers is not None and chosen.numbers.rows[0] == ["jobs", "1"]


def test_of_a_large_cluster_some_gpus_of_each_type_are_shown():
    many = [
        interval(f"j{n}", 0, 60, gpu=n % 4, node_id=f"{kind}-{n // 4:03d}", gpu_type=kind)
        for kind in ("v100", "k80")
        for n in range(40)
    ]
    drawing = gantt(many)
    assert f"{MOST_GPUS} of 80 GPUs are shown" in drawing.caption
    assert len(bars(drawing)) == MOST_GPUS


@pytest.mark.parametrize(
    ("ids", "beginning"), [(["job-10", "job-12"], "job-1"), (["a"], ""), (["a", "ab"], ""), (["x", "y"], ""), ([], "")]
)
def test_what_ids_have_in_common(ids, beginning):
    assert common_beginning(ids) == beginning


class Tags(HTMLParser):
    """What a page refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.references: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [value or "" for name, value in attrs if name in ("src", "href")]


def row(claim_id: str, statement: str, measured: str, verdict: Verdict, note: str = "") -> Row:
    return Row(
        claim_id=claim_id,
        number="V-1",
        where="figure 8",
        statement=statement,
        paper="3.5×",
        source="text; plot 3.46×",
        measured=measured,
        accepted="at least 1.5×",
        reason="a third below",
        verdict=verdict,
        note=note,
    )


CLAIMS = [
    row("c1", "A < B & so on.", "2.9×", Verdict.HOLDS),
    row("c2", "More.", "1.0×", Verdict.DIFFERS, "Ours is smaller."),
    row("c3", "Else.", "–", Verdict.NOT_MEASURED),
]


def test_a_page_needs_nothing_else(tmp_path: Path):
    report = Report(
        "Title <1>",
        "subtitle",
        [("12", "runs")],
        [Claims("Claims", "Of a paper.", CLAIMS)],
        [Section("Load", "Words.", [against([result(), result(load=2.0)])]), Section("Time", "", [gantt(SOME)])],
        made_by="sanjaya experiment grid.yaml",
    )
    files = write_report(report, tmp_path / "out" / "report.html")
    assert [file.name for file in files] == [
        "report.html",
        "jct-against-load.svg",
        "jct-against-load.png",
        "rounds.svg",
        "rounds.png",
    ]
    assert all(file.stat().st_size > 1000 for file in files)
    assert files[2].read_bytes().startswith(b"\x89PNG")
    text = files[0].read_text()
    tags = Tags()
    tags.feed(text)
    assert {reference.partition(",")[0] for reference in tags.references} == {
        "#claims",
        "#load",
        "#time",
        "data:image/svg+xml;base64",
    }
    assert not {"script", "link", "iframe"} & set(tags.tags)
    assert "@import" not in text and "url(" not in text
    for words in (
        "Title &lt;1&gt;",
        "A &lt; B &amp; so on.",
        "✓ holds",
        "✗ differs",
        "not measured",
        "Ours is smaller.",
    ):
        assert words in text
    for words in ("Of a paper.", "text; plot 3.46×", "a third below", 'c2 <span class="row">· V-1'):
        assert words in text
    assert len(re.findall("<figure", text)) == 2 and text.count("<summary>Numbers</summary>") == 2


def test_names_between_backticks_are_code_and_nothing_else_becomes_markup():
    text = page(Report("t", notes=["See `a < b`, not `this"], sections=[Section("s", "In `x.py`.")]))
    assert "See <code>a &lt; b</code>, not `this" in text and "In <code>x.py</code>." in text


def test_the_same_results_give_the_same_page():
    def made() -> str:
        return page(Report("t", sections=[Section("s", "", [against([result(), result(load=2.0)]), gantt(SOME)])]))

    assert made() == made()


def test_the_overview_shows_what_there_is():
    single = overview("one", [result()])
    assert [section.title for section in single.sections] == ["Completion times"]
    kept = result("max_min_fairness", load=2.0, round_s=720.0)
    kept.document["intervals"] = to_rows(SOME)
    many = overview("many", [result(), result(load=2.0), kept])
    assert [section.title for section in many.sections] == ["Completion times", "Rounds", "Over time"]
    assert [drawing.name.split("-")[0] for drawing in many.sections[-1].drawings] == ["utilisation", "shares", "rounds"]
    assert many.facts[0] == ("3", "simulations") and many.facts[1] == ("9", "measured jobs")
    assert [what for _, what in single.facts[:4]] == ["simulation", "measured jobs", "policy or variant", "seed"]
    assert "one" in page(single)
