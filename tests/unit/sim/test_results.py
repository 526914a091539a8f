"""What a simulation says it has measured."""

from __future__ import annotations

import json

import pytest

from libs.contracts.gateway import PolicyChanged
from libs.sim.options import FaultKind
from libs.testing.builders import Scenario
from services.roster import SERVICES


def summary_of(scenario: Scenario, **prices: float):
    result = scenario.run(SERVICES).result(policy="backfill", options={}, cost_per_hour=prices or None, wall_s=1.5)
    return result["summary"]


def test_the_document_has_all_fields_of_the_format():
    scenario = Scenario(seed=3).servers(v100=4).job("a", gpus=2, at=5, runs_s=100)
    result = scenario.run(SERVICES).result(policy="backfill", options={"round_s": 360}, wall_s=0.1)
    assert json.loads(json.dumps(result)) == result
    assert list(result) == ["format", "policy", "options", "cluster", "seed", "jobs", "summary"]
    assert (result["format"], result["cluster"], result["seed"]) == ("simulation-result/1", {"v100": 4}, 3)
    assert result["jobs"] == [
        {
            "job_id": "a",
            "submit_s": 5,
            "first_start_s": 5,
            "steps_100_s": None,
            "finish_s": 105,
            "jct_s": 100,
            "gpu_s": 200,
            "preemptions": 0,
            "migrations": 0,
            "status": "SUCCEEDED",
            "study_status": "passed",
            "retries": 0,
            "waits_s": {},
            "gpu_s_by_attempt": {"1": 200},
        }
    ]
    assert list(result["summary"]) == [
        "jobs",
        "completed",
        "avg_jct_s",
        "p50_jct_s",
        "p99_jct_s",
        "makespan_s",
        "avg_queue_s",
        "avg_time_to_100_steps_s",
        "fair_share_delay_s",
        "fragmentation_delay_s",
        "by_status",
        "waits_s",
        "starts",
        "gpu_utilisation",
        "cost",
        "wall_s",
        "simulated_s",
        "events",
    ]


def test_times_and_utilisation():
    scenario = Scenario().servers(v100=1).job("a", runs_s=100).job("b", runs_s=50).job("c", at=10, runs_s=50)
    summary = summary_of(scenario)
    assert (summary["avg_jct_s"], summary["p50_jct_s"], summary["p99_jct_s"]) == pytest.approx((440 / 3, 150, 190))
    assert (summary["makespan_s"], summary["gpu_utilisation"]) == (200, 1.0)
    assert summary["avg_queue_s"] == pytest.approx((100 + 140) / 3)


def test_cost_is_by_gpu_type_and_unknown_without_prices():
    scenario = Scenario().servers(v100=4).job("a", gpus=4, runs_s=1800)
    assert summary_of(scenario)["cost"] is None
    assert summary_of(scenario, v100=2.0)["cost"] == pytest.approx(4.0)


def test_waiting_for_quota_is_fair_share_delay():
    scenario = Scenario().tenant("default", 1).servers(v100=4).job("a", runs_s=100).job("b", runs_s=10)
    summary = summary_of(scenario)
    assert summary["fair_share_delay_s"] == pytest.approx(50)
    assert summary["fragmentation_delay_s"] == 0


def test_more_than_a_tenants_guarantee_is_fair_share_delay_and_less_is_fragmentation_delay():
    """GPUs beyond the guarantee are lent while nothing else needs them; to wait for more is fair-share delay."""
    scenario = Scenario().servers(v100=2)
    for name in ("own", "other"):
        scenario.tenant(name, None, guarantees={"any": 1})
    scenario.job("a", tenant="own", runs_s=100).job("b", tenant="own", at=1, runs_s=100)
    scenario.job("c", tenant="own", at=10, runs_s=10)
    job = scenario.run(SERVICES).outcomes["c"]
    assert (job.fair_share_s, job.fragmentation_s) == pytest.approx((90, 0))


def test_waiting_for_locality_is_fragmentation_delay():
    """On each of two servers one GPU becomes free: the gang fits, and waits for a server that has both."""
    scenario = Scenario().servers(2, v100=4)
    for job_id, runs_s in (("a", 10), ("b", 1000), ("c", 10), ("d", 1000)):
        scenario.job(job_id, runs_s=runs_s)
    scenario.job("gang", gpus=2, at=20, runs_s=10)
    gang = scenario.run(SERVICES).outcomes["gang"]
    assert (gang.fair_share_s, gang.fragmentation_s) == pytest.approx((0, 60))
    assert gang.waits_s == pytest.approx({"LocalityRelaxing": 60})


def test_a_job_behind_another_waits_for_what_that_one_waits_for():
    scenario = Scenario().servers(4, v100=4).job("a", gpus=4, runs_s=100)
    scenario.job("first", gpus=4, at=10, runs_s=100).job("behind", gpus=4, at=20, runs_s=10)
    result = scenario.run(SERVICES)
    assert result.outcomes["behind"].waits_s == pytest.approx({"InsufficientGpus": 180})


def test_waits_by_cause_tenant_and_size_add_up():
    scenario = Scenario().servers(4, v100=4).job("a", gpus=4, runs_s=100)
    for number in range(3):
        scenario.job(f"j{number}", gpus=2, at=10 * number, runs_s=50)
    document = scenario.run(SERVICES).result(policy="backfill", options={})
    waits = document["summary"]["waits_s"]
    assert waits["cell"] == pytest.approx({"InsufficientGpus": 100 + 90 + 80 + 50}, rel=0.1)
    assert waits["by_tenant"]["default"] == waits["cell"] and waits["by_gpus"] == {"2-4": waits["cell"]}


def test_starts_out_of_order_are_counted_with_those_that_delay_another_job():
    scenario = Scenario().servers(4, v100=8).plan(0.0, PolicyChanged(policy="philly", requested_by="op"))
    for number, runs_s in enumerate((50, 1000, 50, 1000)):
        scenario.job(f"s{number}", gpus=2, runs_s=runs_s)
    scenario.job("gang", gpus=4, at=100, runs_s=10).job("held", at=120, runs_s=10).job("late", at=260, runs_s=10)
    starts = scenario.run(SERVICES).result(policy="philly", options={})["summary"]["starts"]
    assert starts == {"all": 7, "out_of_order": 2, "delaying": 1}


def test_preemptions_and_migrations_are_counted():
    moved = Scenario().servers(1, v100=2).job("a", runs_s=100).drain("v100-000", at=40).run(SERVICES)
    assert (moved.outcomes["a"].preemptions, moved.outcomes["a"].migrations) == (1, 1)
    lost = Scenario().servers(1, v100=2).job("a", runs_s=100)
    crashed = lost.fault(FaultKind.CRASH, "v100-000", at=50, for_s=300).run(SERVICES)
    assert (crashed.outcomes["a"].preemptions, crashed.outcomes["a"].migrations) == (1, 0)


def test_a_run_without_jobs_has_no_averages():
    summary = summary_of(Scenario().servers(v100=1))
    assert (summary["jobs"], summary["avg_jct_s"], summary["gpu_utilisation"]) == (0, None, None)
