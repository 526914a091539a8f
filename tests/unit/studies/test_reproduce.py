"""Claims of papers: the tables, the runs that they need, how they are measured, and how they are judged."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from libs.cli.executing import execute
from libs.contracts.bad_input import BadInput
from libs.policies.table import POLICIES
from libs.studies.experiments.runs import Result, RunSpec
from libs.studies.generators.gavel import GavelWorkload
from libs.studies.report.page import page
from libs.studies.report.verdicts import Verdict
from libs.studies.reproduce import antman, antman_computed, gandiva, gavel, metrics, philly, philly_computed
from libs.studies.reproduce.comparing import COMPARISONS, Value, deviation, exchanged, reached_at
from libs.studies.reproduce.computed import COMPUTED
from libs.studies.reproduce.documents import KEPT_STUDIES
from libs.studies.reproduce.keeping import KEPT, read_kept, read_measured, write_measured
from libs.studies.reproduce.pictures import drawing_of
from libs.studies.reproduce.reporting import Part, report_of
from libs.studies.reproduce.stated import Accepted, Arm, Curve, Picture, Stated, table_of
from libs.studies.reproduce.study import JUDGED, Claim, Study, percent, said, sources, times

SMALL = gavel.Size(gpus_of_each_type=2, seeds=(0,), shrink=20.0)
SEEDED = gavel.Size(gpus_of_each_type=2, seeds=(0, 1, 2), full=True, shrink=20.0)
STUDIES = {"gavel": gavel.study, "gandiva": gandiva.study, "antman": antman.study, "philly": philly.study}
UNCHANGED = {"over": 1.0, "relative": 1.0, "change": 0.0, "saved": 0.0}
"""{comparison: its value where both arms have done the same}"""
OF_WHAT_IS_DRAWN = {"fig5-models", "fig5-minibatches", "table6"}
"""Claims on what the generators draw: no policy takes part, so that there is none to exchange it with."""
GAVEL_ROWS = (
    "V-0 V-1a V-1b V-2 V-31 V-41 V-43 V-44 V-T3a V-T3b V-T3c V-8a V-8b V-8c V-8d V-8e V-8f V-9a V-9b V-9c V-10a V-10b "
    "V-19a V-19b V-19c V-16a V-16b V-16c V-18 V-18b V-20 V-C1 V-C2 V-C3 V-C4 V-11a V-11b V-21 V-12a V-12b V-12c V-13a "
    "V-13b V-14 V-15"
)
GANDIVA_ROWS = (
    "G-0 G-F1 G-F2 G-F3 G-F4 G-F5 G-41a G-41b G-5 G-F7 G-F8 G-F9 G-T1 G-F10 G-F11 G-F12 G-F13 G-F14 G-T3 G-T4 G-63a "
    "G-63b G-63c G-64a G-64b G-64c G-64d G-F18 ours"
)
ANTMAN_ROWS = (
    "A-F1a A-F1b A-F1c A-F1d A-F2a A-F2b A-F3 A-F4 A-F5a A-F5b A-F6 A-F8 A-F10a A-F10b A-T2a A-T2b A-T2c A-T2d A-T2e "
    "A-T2f A-F11a A-F11b A-F12a A-F12b A-F12c A-F13a A-F13b A-F13c A-F13d A-F13e A-F13f A-F13g A-T4a A-T4b A-T5a "
    "A-T5b A-53a A-53b A-53c ours"
)
PHILLY_ROWS = (
    "P-T1a P-T1b P-T1c P-T1d P-32a P-32b P-32c P-32d P-F2 P-F3 P-F4 P-F5a P-F5b P-23a P-23b P-T2 P-T3 P-T4 "
    "P-F8 P-T5a P-T5b P-T5c P-T5d P-T6 P-F9a P-F9b P-F9c P-F9d P-F9e P-F10a P-F10b P-G1 P-G2 P-G3 ours"
)
"""Every claim of the papers with a number, by its place in the list of all claims; `ours` are additions."""


def values(*numbers: float | None, at: float = 0.0) -> list[Value]:
    return [Value(at, seed, number) for seed, number in enumerate(numbers)]


def claim(accepted: Accepted | None, **more: Any) -> Claim:
    stated = Stated(id="c", row="r", where="w", statement="s", accepted=accepted, **more)
    return Claim(stated, {}, dict)


@pytest.mark.parametrize(
    ("compare", "expected"),
    [("over", 1.5), ("relative", 2 / 3), ("change", -1 / 3), ("saved", 1 / 3), ("value", 2.0)],
)
def test_what_two_arms_come_to(compare: str, expected: float):
    assert COMPARISONS[compare](values(2.0, 4.0), values(1.0, 3.0), None) == pytest.approx(expected)
    assert COMPARISONS[compare](values(2.0), values(None, 3.0), None) is None, "a run without a value is no zero"


def test_the_load_at_which_a_curve_reaches_a_limit():
    curve = [Value(at, 0, value) for at, value in ((1.0, 10.0), (2.0, 20.0), (3.0, 60.0))]
    assert reached_at(curve, 40.0) == 2.5
    assert reached_at(curve, 100.0) is None, "not reached: no number that would understate"
    assert reached_at(curve, 5.0) is None
    higher = [Value(each.at * 2, each.seed, each.value) for each in curve]
    assert COMPARISONS["sustained"](curve, higher, 40.0) == pytest.approx(2.0)


def test_seeds_are_compared_with_themselves():
    arms = {"base": values(2.0, 40.0), "tested": values(1.0, 10.0)}
    assert deviation(arms, "over", None) == pytest.approx(2**0.5)
    assert deviation({"base": values(2.0), "tested": values(1.0)}, "over", None) is None


def test_the_policy_and_its_baseline_change_places():
    arms = {"base": values(1.0), "tested": values(2.0)}
    assert exchanged(arms) == {"base": values(2.0), "tested": values(1.0)}
    nearly = {**arms, "instead": values(3.0)}
    assert exchanged(nearly) == {"base": values(1.0), "tested": values(3.0), "instead": values(2.0)}


def test_a_claim_holds_where_its_value_is_accepted():
    found = claim(Accepted(least=1.5, most=2.5, reason="r"), compare="over", cause="Why.")
    verdicts = {value: found.judge({"base": values(value), "tested": values(1.0)}) for value in (1.0, 2.0, 3.0)}
    assert {value: row.verdict for value, row in verdicts.items()} == {
        1.0: Verdict.DIFFERS,
        2.0: Verdict.HOLDS,
        3.0: Verdict.DIFFERS,
    }
    assert (verdicts[1.0].note, verdicts[2.0].note) == ("Why.", "")
    assert claim(Accepted(reason="r")).judge({}).verdict is Verdict.NOT_MEASURED
    assert found.turned({"base": values(2.0), "tested": values(1.0)}) is Verdict.DIFFERS


def test_the_cause_of_a_difference_is_said_to_be_unknown_where_it_is():
    row = claim(Accepted(least=1.5, reason="r")).judge({"tested": values(1.0)})
    assert (row.verdict, row.note) == (Verdict.DIFFERS, "The cause is not known.")


def test_while_runs_are_missing_whole_seeds_are_shown_and_nothing_is_judged():
    found = next(each for each in gavel.study(SEEDED).claims if each.claim_id == "fig8-jct")
    load = found.points["tested"][0].at
    row = found.judge({"tested": values(1.0, 1.0, at=load), "base": values(3.0, at=load)})
    assert (row.verdict, row.measured) == (Verdict.INCOMPLETE, "3.00×")
    assert row.note == "3 of 6 runs made; the value is of seed 0."
    row = found.judge({"tested": values(1.0, at=load)})
    assert (row.verdict, row.measured, row.note) == (Verdict.INCOMPLETE, "–", "1 of 6 runs made.")
    assert found.judge({}).verdict is Verdict.NOT_MEASURED
    assert found.turned({"tested": values(1.0, at=load)}) is Verdict.NOT_MEASURED


def test_a_study_goes_on_from_what_was_measured_before():
    some = gavel.study(SEEDED).only(["fig10-rho", "fig8-jct-moderate"])
    assert [spec.seed for spec in some.runs()] == sorted(spec.seed for spec in some.runs())
    everything = {
        each.claim_id: {
            role: [Value(point.at, point.spec.seed, 1.0) for point in points]
            for role, points in each.points.items()
            if role != "isolated"
        }
        for each in some.claims
    }
    assert some.runs(everything) == ()
    first = everything["fig10-rho"]["base"].pop(0)
    missing = some.runs(everything)
    assert {spec.policy for spec in missing} == {"finish_time_fairness", "isolated"}
    assert some.measure([], everything) == everything
    again = some.measure([], {**everything, "fig10-rho": {"base": [first]}})
    assert again["fig10-rho"] == {"base": [first]}, "a value that is known stays, and none is made up"


def test_a_value_counts_for_every_claim_that_measures_the_same_of_the_same_run():
    whole = gavel.study(SEEDED)
    claims = {each.claim_id: each for each in whole.claims}
    runs = {point.spec.cell_id: point for point in claims["fig8-jct"].points["base"]}
    values = [Value(point.at, point.spec.seed, 7.0 + point.spec.seed) for point in runs.values()]
    found = whole.shared({"fig8-jct": {"base": values}})
    assert found["fig8-jct"] == found["fig8-load"] == {"base": values}, "of its curve only what was measured"
    assert found["overhead"] == {"instead": values}, "in another role"
    assert {*found} == {"fig8-jct", "fig8-load", "fig8-load-sharing", "fig13b-ideal", "overhead"}
    assert not {each.cell_id for each in whole.runs(found)} & {*runs}
    assert whole.shared(found) == found


@pytest.mark.parametrize("name", ["gavel-full", "gandiva-full"])
def test_what_is_kept_has_each_value_for_all_claims_that_it_counts_for(name: str):
    claims = read_kept(KEPT / f"{name}.json").claims
    assert KEPT_STUDIES[name]().shared(claims) == claims


def test_a_long_study_makes_the_runs_of_claims_with_a_turn_first_claim_by_claim():
    whole = gavel.study(SEEDED)
    order = {spec.cell_id: place for place, spec in enumerate(whole.runs())}
    early = sorted((each for each in whole.claims if each.stated.turn is not None), key=lambda each: each.stated.turn)
    assert [each.claim_id for each in early[:3]] == ["fig8-jct", "makespan-fifo", "makespan-fifo-artifact"]
    seen, last = set(), -1
    for each in early:
        runs = [point.spec for role in JUDGED for point in each.points.get(role, ())]
        fresh = sorted({order[spec.cell_id] for spec in runs} - seen)
        assert fresh == list(range(last + 1, last + 1 + len(fresh))), each.claim_id
        assert all(spec.seed in SEEDED.seeds for spec in runs)
        seen, last = seen | set(fresh), last + len(fresh)
    others = [spec.seed for spec in whole.runs()[last + 1 :]]
    assert others
    assert others == sorted(others)


def test_as_large_a_part_of_a_table_is_measured_beside_each_other_as_in_the_paper():
    found = next(each for each in gavel.study(SMALL).claims if each.claim_id == "fig14-estimated")
    assert {point.spec.references for point in found.points["tested"]} == {5}, "of 8, as 16 of 26"
    assert {point.spec.references for point in found.points["base"]} == {None}


def test_what_is_accepted_in_words():
    assert said(Accepted(least=1.5, reason=""), times) == "at least 1.50×"
    assert said(Accepted(most=0.02, reason=""), percent) == "at most 2.0 %"
    assert said(Accepted(least=0.9, most=1.1, reason=""), times) == "0.90× to 1.10×"
    assert (times(99.5), times(3368.97)) == ("99.50×", "3,369×")


@pytest.mark.parametrize(
    ("paper", "rows"),
    [("gavel", GAVEL_ROWS), ("gandiva", GANDIVA_ROWS), ("antman", ANTMAN_ROWS), ("philly", PHILLY_ROWS)],
)
def test_every_claim_of_a_paper_is_in_its_table_once(paper: str, rows: str):
    table = table_of(paper)
    assert {stated.row for stated in table.claim} == set(rows.split())
    assert len({stated.id for stated in table.claim}) == len(table.claim)


@pytest.mark.parametrize("paper", STUDIES)
def test_every_claim_is_measured_or_says_what_it_waits_for(paper: str):
    computed = {**COMPUTED, **antman_computed.COMPUTED, **philly_computed.COMPUTED}
    for stated in table_of(paper).claim:
        measured = bool(stated.tested or stated.computed)
        assert measured != bool(stated.waits), stated.id
        assert measured == (stated.accepted is not None), stated.id
        assert stated.compare in COMPARISONS and (stated.limit is not None) == (stated.compare == "sustained"), (
            stated.id
        )
        assert stated.computed in computed or not stated.computed, stated.id
        assert stated.metric in metrics.METRICS or not stated.tested, stated.id
        assert stated.base_metric in metrics.METRICS or not stated.base_metric, stated.id
        assert not stated.tested or stated.base or stated.instead, f"{stated.id}: nothing to exchange it with"
        assert "memory" not in stated.source and (stated.source or not re.search(r"\d", stated.paper)), stated.id
        for accepted in filter(None, (stated.accepted, stated.accepted_full)):
            assert accepted.reason and (accepted.least is not None or accepted.most is not None), stated.id
        for text in (stated.statement, stated.setup, stated.cause, stated.waits):
            assert not text or text.endswith((".", "?")), (stated.id, text)


@pytest.mark.parametrize("paper", STUDIES)
def test_pictures_show_what_claims_measure(paper: str):
    table = table_of(paper)
    roles = {(stated.id, role) for stated in table.claim for role in stated.arms}
    for picture in table.picture:
        assert set(sources(picture)) <= roles, picture.name


@pytest.mark.parametrize(
    "whole", [gavel.study(), gavel.study(gavel.FULL), gandiva.study(), gandiva.study(gandiva.FULL)]
)
def test_every_run_can_be_written_down(whole: Study):
    assert all(spec.policy in POLICIES for spec in whole.runs())
    assert len({spec.cell_id for spec in whole.runs()}) == len(whole.runs()) > 40
    for chapter in whole.chapters:
        assert whole.runs_of(chapter.claims), chapter.title


def test_the_window_of_measured_jobs_and_the_batch_shrink_with_the_cluster():
    assert gavel.Size().window == (889, 1111)
    assert gavel.Size().jobs(700) == 156
    assert (gavel.FULL.window, gavel.FULL.jobs(700)) == ((4000, 5000), 700)


def test_loads_are_parts_of_what_can_be_sustained():
    plan = gavel.GavelPlan(SMALL)
    (half,) = plan.points(Arm(workload="single", policy="fifo", at=[0.5]), None)
    (whole,) = plan.points(Arm(workload="single", policy="fifo", at=[1.0]), None)
    assert whole.spec.jobs_per_hour == pytest.approx(2 * (half.spec.jobs_per_hour or 0.0), abs=1e-3)


@pytest.mark.parametrize("file", sorted(KEPT.glob("*.json")), ids=lambda file: file.stem)
def test_no_range_would_pass_the_baseline_in_place_of_the_policy(file: Path):
    study, measured = KEPT_STUDIES[file.stem](), read_kept(file).claims
    assert set(measured) <= {each.claim_id for each in study.claims}, "values of claims that are in no table"
    rows = {row.claim_id: row for row in study.judge(measured)}
    for each in (found for found in study.claims if found.accepted is not None):
        arms, whole = measured.get(each.claim_id, {}), rows[each.claim_id].verdict in (Verdict.HOLDS, Verdict.DIFFERS)
        assert whole or each.full, f"{each.claim_id}: runs are missing"
        other = "instead" if "instead" in each.stated.arms else "base"
        if whole and any(value.value is not None for value in arms.get(other, ())):
            assert each.turned(arms) is Verdict.DIFFERS, f"{each.claim_id}: the baseline passes as well"
        elif whole:
            assert each.full or each.claim_id in OF_WHAT_IS_DRAWN, f"{each.claim_id}: nothing to exchange it with"


@pytest.mark.parametrize("whole", KEPT_STUDIES)
def test_no_range_would_pass_a_policy_that_changes_nothing(whole: str):
    for each in KEPT_STUDIES[whole]().claims:
        unchanged = UNCHANGED.get(each.stated.compare)
        papers = each.stated.row != "ours" and each.stated.instead is None
        if each.accepted is not None and unchanged is not None and papers:
            assert unchanged not in each.accepted, each.claim_id


def picture(*curves: Curve) -> Picture:
    return Picture(name="p", title="t", text="", place="load", value="hours", curves=list(curves))


def test_what_is_measured_at_one_place_is_drawn_as_bars_and_crosses_are_named_where_there_are_some():
    ours, other = Curve(label="antman", claims=["a/tested"]), Curve(label="fifo", claims=["a/base"])
    drawn = drawing_of(picture(ours, other), {"a": {"tested": values(1.0, 3.0), "base": values(4.0)}})
    assert drawn is not None and "Crosses" not in drawn.caption
    (axes,) = drawn.figure.axes
    assert [bar.get_height() for bar in axes.patches] == [2.0, 4.0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["antman", "fifo"] and axes.get_legend() is None
    known = Curve(label="antman", claims=["a/tested"], paper=[(0.0, 2.5)])
    drawn = drawing_of(picture(known), {"a": {"tested": values(1.0)}})
    assert drawn is not None and "Crosses" in drawn.caption and not drawn.figure.axes[0].patches
    assert drawing_of(picture(known), {}) is None


def test_what_only_the_paper_has_is_named_beside_the_picture():
    ours, other = (Curve(label=label, claims=[f"{label}/tested"], paper=[(0.0, 2.5)]) for label in ("antman", "fifo"))
    drawn = drawing_of(picture(ours, other), {"antman": {"tested": values(1.0)}})
    assert drawn is not None
    legend = drawn.figure.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["antman", "fifo: paper only", "the paper's points"]


def test_what_was_measured_is_kept_and_read_again(tmp_path: Path):
    measured = {"c": {"base": values(1.0, None), "tested": values(2.5)}}
    write_measured(measured, "24 GPUs", tmp_path / "m.json")
    assert read_measured(tmp_path / "m.json", "24 GPUs") == measured
    with pytest.raises(BadInput, match=r"m.json: \$.size: '24 GPUs'; expected '108 GPUs'"):
        read_measured(tmp_path / "m.json", "108 GPUs")
    (tmp_path / "m.json").write_text('{"format": "other/1", "size": "", "claims": {}}')
    with pytest.raises(BadInput, match="expected a measured/1 document"):
        read_kept(tmp_path / "m.json")


def test_deadlines_and_priorities_are_read_from_the_drawn_workload():
    workload = GavelWorkload(jobs=4, slo_factors=(2.0,), high_priority_share=0.5)
    spec = RunSpec(policy="fifo", workload=workload)
    jobs = spec.jobs()
    rows = [
        {"job_id": job.job_id, "jct_s": (job.deadline_s or 0.0) + (1.0 if number == 0 else -1.0)}
        for number, job in enumerate(jobs)
    ]
    result = Result(spec, {"jobs": rows})
    assert metrics.late(result) == 0.25
    high = [row["jct_s"] for row, job in zip(rows, jobs, strict=True) if (job.weight or 1.0) > 1.0]
    assert metrics.METRICS["avg_jct_high_priority_s"](result, None) == pytest.approx(sum(high) / len(high))


def test_finish_time_fairness_is_against_a_run_of_the_isolated_policy():
    spec = RunSpec(policy="fifo", workload=GavelWorkload(jobs=2))

    def run(*jct_s: float | None) -> Result:
        return Result(spec, {"jobs": [{"job_id": str(n), "jct_s": each} for n, each in enumerate(jct_s)]})

    assert metrics.finish_time_fairness(run(10.0, 30.0), run(20.0, 20.0)) == [0.5, 1.5]
    assert metrics.finish_time_fairness(run(10.0, None), run(20.0, 20.0)) == [0.5]
    assert metrics.finish_time_fairness(run(10.0, 30.0), None) == []


def test_shares_of_entities_count_progress_while_all_jobs_are_there():
    workload = GavelWorkload(kind="static-single", jobs=2, tenants=("a", "b"), models=("A3C",))
    spec = RunSpec(policy="hierarchical", workload=workload, seed=7, cluster="v100=2", tenant_weights={"b": 2.0})
    jobs = spec.jobs()
    assert sorted(job.tenant for job in jobs) == ["a", "b"]
    rows = [{"submit_s": 0.0, "finish_s": 100.0}, {"submit_s": 20.0, "finish_s": 200.0}]
    held = [[job.job_id, job.tenant, "v100-000", n, "v100", 0.0, 200.0] for n, job in enumerate(jobs)]
    result = Result(spec, {"jobs": rows, "intervals": held})
    assert metrics.entity_progress(result) == pytest.approx({"a": 80.0, "b": 80.0})
    assert metrics.worst_share(result) == pytest.approx(0.75), "b has 1/2 and is owed 2/3"
    assert metrics.worst_share(Result(spec, {"jobs": rows})) is None


def test_claims_that_need_no_runs_hold_by_the_computed_table():
    study = gavel.study(SMALL)
    rows = {row.claim_id: row for row in study.judge(study.measure([]))}
    for claim_id in ("fig1-resnet50", "fig1-a3c", "las-example", "water-filling", "fig11-agnostic", "fig21-order"):
        assert rows[claim_id].verdict is Verdict.HOLDS, rows[claim_id]


def test_a_part_of_a_study():
    some = gavel.study(SMALL).only(["fig10"])
    assert [each.claim_id for each in some.claims] == ["fig10-jct", "fig10-rho"]
    assert [picture.name for picture in some.pictures] == ["fig10"]
    assert {spec.policy for spec in some.runs()} == {"finish_time_fairness", "isolated"}
    assert gavel.study(SMALL).only(["nothing"]).runs() == ()


def test_ids_of_a_page_of_several_papers_are_each_there_once():
    parts = [
        Part(study, "small", [], measured, study.judge(measured))
        for study in (of() for of in STUDIES.values())
        for measured in [read_kept(KEPT / f"{study.paper}.json").claims]
    ]
    text = page(report_of(parts, "by hand"))
    ids = re.findall(r' id="([^"]*)"', text)
    assert [name for name, times in Counter(ids).items() if times > 1] == []
    assert set(re.findall(r' href="#([^"]*)"', text)) <= set(ids)
    assert {"gavel-headline", "gandiva-headline", "gavel-fig10"} <= set(ids)
    assert ' id="headline"' in page(report_of(parts[:1], "by hand")), "a page of one paper keeps its addresses"


def test_a_small_part_of_the_study_from_runs_to_report(tmp_path: Path):
    some = gavel.study(SMALL).only(["fig10", "fig11-shares", "fig13b", "makespan-fifo", "table3"])
    results = [Result(spec, execute(spec)) for spec in some.runs()]
    measured = some.measure(results)
    rows = some.judge(measured)
    assert [row.claim_id for row in rows if row.measured == "–"] == ["table3-fidelity"]
    text = page(report_of([Part(some, "small", results, measured, rows)], "by hand"))
    assert all(row.claim_id in text for row in rows)
    assert "Shares over time" in text and "Differs: " in text
    assert f"{len(rows)} claims. {len(rows) - 1} are measured" in text


def test_a_report_of_several_papers_says_which_one_each_line_is_about():
    parts = []
    for paper in STUDIES:
        study, measured = STUDIES[paper](), read_kept(KEPT / f"{paper}.json").claims
        parts.append(Part(study, "kept", [], measured, study.judge(measured)))
    report = report_of(parts, "by hand")
    assert report.title == "Gavel (OSDI'20), Gandiva (OSDI'18), AntMan (OSDI'20) and Philly: claims, measured"
    for part in parts:
        assert [note for note in report.notes if note.startswith(f"{part.study.title}: {len(part.rows)} claims. ")]
    differing = [note for note in report.notes if note.startswith("Differs: ")]
    assert all(note.startswith(tuple(f"Differs: {part.study.title}, " for part in parts)) for note in differing)
    assert not [note for note in report.notes if "has not stated" in note]
    names = [section.title for section in report.sections]
    assert "Gavel (OSDI'20) · Figure 8a: LAS as the load grows, one GPU per job" in names
    assert len(set(names)) == len(names)
    alone = report_of(parts[:1], "by hand")
    assert alone.notes[0].startswith(f"{len(parts[0].rows)} claims. ")
    assert alone.sections[0].title.startswith("Figure ")


def test_nothing_was_run():
    empty = gavel.study(SMALL).only(["cost"])
    rows = empty.judge({})
    assert {row.verdict for row in rows} == {Verdict.NOT_MEASURED}
    assert "<h2" in page(report_of([Part(empty, "small", [], {}, rows)], ""))
