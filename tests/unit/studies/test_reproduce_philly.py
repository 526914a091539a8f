"""The workload of the Philly study, what is measured of its runs, and the study in a very small size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from libs.cli.executing import execute
from libs.contracts.bad_input import BadInput
from libs.contracts.gateway import ANY_TYPE, SettingChanged, TenantConfigured, ThroughputsProvided
from libs.sim.table6 import drawn_ends
from libs.studies.experiments.runs import Result, RunSpec
from libs.studies.generators.philly import DAY_S, VIRTUAL_CLUSTERS, PhillyWorkload, busiest, work_gpus
from libs.studies.report.verdicts import Verdict
from libs.studies.reproduce.philly import PhillyPlan, Size, scaling, study
from libs.studies.reproduce.philly_computed import COMPUTED
from libs.studies.reproduce.philly_metrics import PHILLY_METRICS
from libs.studies.reproduce.stated import Arm

ARMS = ("lent", "without failures", "with trials", "reclaimed at 100 %", "spread costs", "locality is waited for")
HEAD = "job_id,submit_time_s,tenant,model,batch_size,gpus,total_steps,duration_s\n"


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """Four days with little work, but for the third one; a job of the first day still runs in it."""
    rows = ["long,10,6214e9,,,8,,300000", "gone,20,6214e9,,,1,,60"]
    rows += [f"busy-{n},{2 * DAY_S + 60 * n},7f04ca,,,{(1, 2, 8)[n % 3]},,40000" for n in range(30)]
    rows += [f"late-{n},{3 * DAY_S + n + 1},6214e9,,,1,,60" for n in range(3)]
    file = tmp_path / "trace.csv"
    file.write_text(HEAD + "\n".join(rows) + "\n")
    return str(file)


def test_the_busiest_days_and_what_still_runs_in_them_are_played(trace: str):
    workload = PhillyWorkload(trace=trace, days=1)
    jobs = workload.draw(0, workload.rates())
    assert [job.job_id for job in jobs] == ["long", *(f"busy-{n}" for n in range(30))]
    assert (jobs[0].submit_time_s, jobs[1].submit_time_s) == (0.0, 2 * DAY_S - 10)
    assert workload.measured(0) == (1, 31)


def test_servers_and_guarantees_are_scaled_by_one_factor_to_the_occupancy(trace: str):
    half, whole = (PhillyWorkload(trace=trace, days=1, occupancy=part) for part in (0.5, 1.0))
    work_gpus = busiest(trace, 1, 0).work_gpus
    assert half.servers(0) * 8 * 0.5 == pytest.approx(work_gpus, abs=4.0)
    assert whole.servers(0) == pytest.approx(half.servers(0) / 2, abs=1)
    events = [planned.event for planned in half.requests(0)]
    tenants = [event for event in events if isinstance(event, TenantConfigured)]
    assert {each.tenant for each in tenants} == set(VIRTUAL_CLUSTERS)
    large = next(each for each in tenants if each.tenant == "6214e9")
    assert large.guarantees[ANY_TYPE] == max(1, int(64 * 8 * half.factor(0)))
    settings = {event.name: event.value for event in events if isinstance(event, SettingChanged)}
    assert settings == {
        "reclaim_above": 0.9,
        "emptiest_above_gpus": 1.0,
        "relax_after": 3.0,
        "small_servers": 0.0,
        "wait_for_locality_s": 0.0,
    }


def test_the_work_is_what_jobs_do_with_their_failures_where_nothing_waits(trace: str):
    point = PhillyPlan(Size(trace=trace, days=1)).points(Arm(workload="lent", policy="philly", at=[0.1]), 1)[0]
    spec = replace(point.spec, measure=None, keep_study=False)
    jobs, forever_s = spec.jobs(), 1e9
    assert any(ending.dooms for ending in drawn_ends(jobs, 0)[1].values())
    done_s = sum(row["gpu_s"] for row in execute(spec)["jobs"])
    assert work_gpus(jobs, 0.0, forever_s, 0) * forever_s == pytest.approx(done_s, rel=0.01)


def test_without_a_trace_jobs_are_drawn_with_its_sizes_and_run_times():
    workload = PhillyWorkload(days=2)
    jobs = workload.draw(1, workload.rates())
    assert jobs == workload.draw(1, workload.rates()) != workload.draw(2, workload.rates())
    assert sum(job.gpus == 1 for job in jobs) / len(jobs) == pytest.approx(0.9455, abs=0.02)
    first, end = workload.measured(1)
    ones = sorted(job.duration_s or 0.0 for job in jobs[first:end] if job.gpus == 1)
    assert ones[len(ones) // 2] / 60 == pytest.approx(23.77, rel=0.25)
    assert {job.tenant for job in jobs} == set(VIRTUAL_CLUSTERS)


def test_bad_input_is_named(tmp_path: Path):
    with pytest.raises(BadInput, match="days"):
        PhillyWorkload(days=0)
    with pytest.raises(BadInput, match="occupancy"):
        PhillyWorkload(occupancy=1.5)
    file = tmp_path / "t.csv"
    file.write_text(HEAD + "a,0,t,,,1,100,\n")
    with pytest.raises(BadInput, match="no job with a duration"):
        PhillyWorkload(trace=str(file)).servers(0)


def test_arms_differ_in_what_they_name_alone(trace: str):
    plan = PhillyPlan(Size(trace=trace, days=1))

    def spec(workload: str) -> RunSpec:
        (point,) = plan.points(Arm(workload=workload, policy="philly", at=[0.8]), 1)
        return point.spec

    lent = spec("lent")
    assert isinstance(lent.workload, PhillyWorkload)
    always = replace(lent, workload=replace(lent.workload, reclaim_above=0.0))
    assert spec("reclaimed at 0 %") == always
    assert len({spec(name).cell_id for name in ARMS}) == len(ARMS)
    with pytest.raises(ValueError, match="no workload is called 'other'"):
        spec("other")
    assert "servers and quotas times" in scaling(Size(trace=trace, days=1))


def test_where_spreading_costs_jobs_are_as_long_together_and_operators_say_how_slow_they_are_spread(trace: str):
    plain, costs = (PhillyWorkload(trace=trace, days=1, kept_when_spread=kept) for kept in (1.0, 0.5))
    jobs, rates = costs.draw(0, costs.rates()), costs.rates()
    assert [job.duration_s for job in jobs] == [job.total_steps for job in jobs]
    assert [job.duration_s for job in jobs] == [job.duration_s for job in plain.draw(0, plain.rates())]
    assert [rates.rate(jobs[0].config, "v100", consolidated=near) for near in (True, False)] == [1.0, 0.5]
    told = [planned.event for planned in costs.requests(0)]
    [provided] = [event for event in told if isinstance(event, ThroughputsProvided)]
    assert {row.spread_steps_per_s["v100"] for row in provided.isolated} == {0.5}
    assert not any(isinstance(planned.event, ThroughputsProvided) for planned in plain.requests(0))


def test_numbers_of_the_study_are_weighted_over_sizes_and_reasons_compared():
    found = {
        "Figure 10: 1 GPU, jobs": 10,
        "Figure 10: 1 GPU, retries per job": 0.5,
        "Figure 10: 8 GPU, jobs": 3,
        "Figure 10: 8 GPU, retries per job": 1.0,
        "Figure 10: 16 GPU, jobs": 1,
        "Figure 10: 16 GPU, retries per job": 5.0,
        "Section 3.2: large jobs passed, harmless": 0.9,
    }
    reasons = {"a": {"drawn": 100, "found": 98}, "b": {"drawn": 10, "found": 11}}
    result = Result(RunSpec(policy="philly", workload=PhillyWorkload()), {"study": found, "reasons": reasons})
    measured = {name: PHILLY_METRICS[name](result, None) for name in ("retries_one", "retries_large", "worst_reason")}
    assert measured == {"retries_one": 0.5, "retries_large": 2.0, "worst_reason": 0.1}
    assert PHILLY_METRICS["harmful"](result, None) == pytest.approx(0.1)
    assert PHILLY_METRICS["fragmentation_large"](result, None) is None


def test_curves_that_are_made_for_figure_9_are_found_again_and_even_ones_are_not():
    assert COMPUTED["near-passed"]() == {"base": 0.0, "tested": 0.75}
    assert COMPUTED["after-killed"]()["tested"] == pytest.approx(0.56, abs=0.01)


def test_a_small_study_from_runs_to_verdicts(trace: str):
    some = study(Size(trace=trace, days=1)).only(["table5", "table6", "fig9", "guideline1", "guideline3", "table2"])
    results = [Result(spec, execute(spec)) for spec in some.runs()]
    rows = {row.claim_id: row for row in some.judge(some.measure(results))}
    assert rows["table6"].verdict is Verdict.HOLDS, "each drawn reason is found again"
    assert rows["fig9-best"].verdict is Verdict.HOLDS
    assert rows["guideline1"].measured.endswith("%")
    assert rows["table5-passed"].measured.endswith("%")
    assert rows["table2"].verdict is Verdict.NOT_MEASURED
