"""Claims of papers: the runs they need, how they are measured, and how they are judged."""

from __future__ import annotations

from typing import Any

import pytest

from libs.cli.executing import execute
from libs.policies.table import POLICIES
from libs.studies.experiments.runs import Result, RunSpec
from libs.studies.generators.gavel import GavelWorkload
from libs.studies.report.page import page
from libs.studies.report.verdicts import Verdict
from libs.studies.reproduce import metrics
from libs.studies.reproduce.gavel import study
from libs.studies.reproduce.gavel_plan import PAPER_SIZE, Plan, Size
from libs.studies.reproduce.reporting import report_of
from libs.studies.reproduce.study import Accepted, Claim, Roles, Study, percent, times

SMALL = Size(
    gpus_of_each_type=2,
    jobs=12,
    measure=(2, 8),
    static_jobs=6,
    seeds=(0,),
    loads=(0.5, 0.9),
    multi_level_days=0.25,
)
WORKLOAD = GavelWorkload(jobs=3)


def played(load: float = 1.0, jct_h: float = 1.0, seed: int = 0, **options: Any) -> Result:
    workload = GavelWorkload(jobs=3, jobs_per_hour=load)
    spec = RunSpec(policy="fifo", workload=workload, seed=seed, **options)
    return Result(spec, {"jobs": [], "summary": {"avg_jct_s": 3600 * jct_h, "jobs": 3}})


def judged(value: float | None, accepted: Accepted) -> Verdict:
    spec = RunSpec(policy="fifo", workload=WORKLOAD)
    claim = Claim(
        claim_id="c", source="s", statement="t", runs={"a": [spec]}, measure=lambda roles: value, accepted=accepted
    )
    return claim.judge({spec.cell_id: Result(spec, {})}).verdict


def test_a_claim_holds_where_its_value_is_accepted():
    assert judged(2.0, Accepted(least=1.5)) is Verdict.HOLDS
    assert judged(1.0, Accepted(least=1.5)) is Verdict.DIFFERS
    assert judged(1.5, Accepted(most=1.3)) is Verdict.DIFFERS
    assert judged(None, Accepted()) is Verdict.NOT_MEASURED
    assert judged(float("inf"), Accepted()) is Verdict.NOT_MEASURED


def test_a_claim_without_all_of_its_results_is_not_measured():
    specs = [RunSpec(policy="fifo", workload=WORKLOAD, seed=seed) for seed in (0, 1)]

    def never(roles: Roles) -> float:
        raise AssertionError

    claim = Claim(claim_id="c", source="s", statement="t", runs={"a": specs}, measure=never)
    row = claim.judge({specs[0].cell_id: Result(specs[0], {})})
    assert (row.verdict, row.measured, row.note) == (Verdict.NOT_MEASURED, "–", "1 runs have no result.")
    impossible = Claim(claim_id="c", source="s", statement="t", note="No GPUs here.").judge({})
    assert (impossible.verdict, impossible.accepted, impossible.note) == (Verdict.NOT_MEASURED, "–", "No GPUs here.")


def test_what_is_accepted_in_words():
    assert Accepted(least=1.5).said(times) == "at least 1.50×"
    assert Accepted(most=0.02).said(percent) == "at most 2.0 %"
    assert Accepted(0.9, 1.1).said(times) == "0.90× to 1.10×"


def test_ratios_are_of_means_over_seeds():
    jct = metrics.field("avg_jct_s")
    roles = {
        "a": [played(jct_h=2), played(jct_h=4)],
        "b": [played(jct_h=1)],
        "none": [Result(played().spec, {"summary": {}})],
    }
    assert metrics.ratio("a", "b", jct)(roles) == 3
    assert metrics.ratio("a", "none", jct)(roles) is None
    assert metrics.mean("a", jct)(roles) == 3 * 3600


def test_the_load_at_which_a_cluster_is_full():
    curve = [played(load, jct_h) for load, jct_h in ((1.0, 10.0), (2.0, 20.0), (3.0, 60.0))]
    assert metrics.load_at(curve, 40.0) == 2.5
    assert metrics.load_at(curve, 100.0) == 3.0, "the highest that was looked at"
    assert metrics.load_at(curve, 5.0) == 1.0, "the lowest"
    assert metrics.load_at([], 5.0) is None


def test_deadlines_and_priorities_are_read_from_the_drawn_workload():
    workload = GavelWorkload(jobs=4, slo_factors=(2.0,), high_priority_share=0.5)
    spec = RunSpec(policy="fifo", workload=workload)
    jobs = spec.jobs()
    rows = [
        {"job_id": job.job_id, "jct_s": (job.deadline_s or 0.0) + (1.0 if number == 0 else -1.0)}
        for number, job in enumerate(jobs)
    ]
    result = Result(spec, {"jobs": rows})
    assert metrics.slo_violations(result) == 0.25
    high = [row["jct_s"] for row, job in zip(rows, jobs, strict=True) if metrics.has_high_priority(job)]
    assert metrics.avg_jct_where(metrics.has_high_priority)(result) == pytest.approx(sum(high) / len(high))


def test_finish_time_fairness_of_a_job_on_its_own_part_of_the_cluster():
    workload = GavelWorkload(kind="static-single", jobs=2)
    spec = RunSpec(policy="fifo", workload=workload, cluster="v100=1")
    rates = spec.rates()
    alone_s = [job.total_steps / rates.rate(job.config, "v100", True) for job in spec.jobs()]
    rows = [
        {"job_id": job.job_id, "submit_s": 0.0, "finish_s": 4 * alone, "jct_s": 4 * alone}
        for job, alone in zip(spec.jobs(), alone_s, strict=True)
    ]
    first, second = sorted(zip(alone_s, metrics.finish_time_fairness(Result(spec, {"jobs": rows})), strict=True))
    assert first[1] == pytest.approx(2.0), "two jobs were there all of its time: half of the GPU each"
    assert second[1] == pytest.approx(4 / (1 + first[0] / second[0]))


def test_shares_of_entities_count_progress_until_the_first_job_ends():
    workload = GavelWorkload(kind="static-single", jobs=2, tenants=("a", "b"), models=("A3C",))
    spec = RunSpec(policy="hierarchical", workload=workload, seed=7, cluster="v100=2", tenant_weights={"b": 2.0})
    jobs = spec.jobs()
    assert sorted(job.tenant for job in jobs) == ["a", "b"]
    rows = [{"finish_s": 100.0}, {"finish_s": 200.0}]
    held = [[job.job_id, job.tenant, "v100-000", n, "v100", 0.0, 200.0] for n, job in enumerate(jobs)]
    result = Result(spec, {"jobs": rows, "intervals": held})
    assert metrics.entity_progress(result) == pytest.approx({"a": 100.0, "b": 100.0})
    assert metrics.worst_share(result) == pytest.approx(0.75), "b has 1/2 and is owed 2/3"
    assert metrics.worst_share(Result(spec, {"jobs": rows})) is None


@pytest.mark.parametrize("size", [Size(), SMALL, PAPER_SIZE])
def test_every_claim_has_runs_or_says_why_not(size: Size):
    whole = study(size)
    ids = [claim.claim_id for claim in whole.claims]
    assert len(set(ids)) == len(ids)
    for claim in whole.claims:
        assert claim.runs or claim.note, claim.claim_id
        assert claim.statement.endswith((".", "h.", "priority.")), claim.claim_id
    assert all(spec.policy in POLICIES for spec in whole.runs)
    assert len({spec.cell_id for spec in whole.runs}) == len(whole.runs)


def test_the_figures_of_section_7_are_all_there():
    sources = " ".join(claim.source for claim in study().claims)
    for figure in ("figure 8", "figure 9", "figure 10", "figure 11", "figure 13a", "figure 13b", "figure 14", "16–21"):
        assert figure in sources
    assert "table 3" in sources and "cost" in sources


def test_a_part_of_a_study():
    some = study(SMALL).only(["fig10"])
    assert [claim.claim_id for claim in some.claims] == ["fig10-jct", "fig10-rho"]
    assert [chapter.title for chapter in some.chapters] == ["Figure 10: finish-time fairness"]
    assert {spec.policy for spec in some.runs} == {"finish_time_fairness"}
    assert study(SMALL).only(["nothing"]).runs == ()


def test_loads_are_parts_of_what_can_be_sustained():
    plan = Plan(SMALL)
    whole = plan.sustainable(WORKLOAD, SMALL.cluster)
    (spec,) = plan.at_high_load("continuous-single", "fifo", {})
    assert spec.jobs_per_hour == pytest.approx(0.9 * whole, abs=1e-3)


def test_a_small_part_of_the_study_from_runs_to_report():
    some = study(SMALL).only(["fig11", "fig13b", "fig14"])
    quick = {spec.cell_id: spec for spec in some.runs}
    results = [Result(spec, execute(spec)) for spec in quick.values()]
    rows = some.judge(results)
    assert [row.claim_id for row in rows] == ["fig11-shares", "fig13b-ideal", "fig14-estimated"]
    assert [row.measured != "–" for row in rows] == [True, True, True]
    report = report_of(some, results, rows, "small", "by hand")
    text = page(report)
    assert all(row.statement.split(",")[0] in text for row in rows)
    assert "fig11-rounds" in text and "Shares over time" in text


def test_nothing_was_run():
    empty: Study = study(SMALL).only(["cost"])
    rows = empty.judge([])
    assert {row.verdict for row in rows} == {Verdict.NOT_MEASURED}
    assert "<h2" in page(report_of(empty, [], rows, "", ""))
