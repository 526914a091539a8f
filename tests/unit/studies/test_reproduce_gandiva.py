"""The workloads of the Gandiva paper, and its study in a very small size."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from libs.cli.executing import execute
from libs.contracts.bad_input import BadInput
from libs.studies.experiments.runs import Result, RunSpec
from libs.studies.generators.gandiva import GPU_TYPES, TABLE_1, TABLE_2, GandivaWorkload
from libs.studies.generators.hierarchy import HierarchyWorkload
from libs.studies.generators.sweep import SweepWorkload
from libs.studies.report.verdicts import Verdict
from libs.studies.reproduce.gandiva import Size, study
from libs.studies.reproduce.metrics import METRICS, used_gpus
from libs.studies.reproduce.reporting import Part, report_of


def test_the_workload_is_the_same_for_a_seed_and_uses_every_model():
    workload = GandivaWorkload(jobs=200, jobs_per_hour=100.0)
    rates = workload.rates()
    jobs = workload.draw(3, rates)
    assert jobs == workload.draw(3, rates) != workload.draw(4, rates)
    assert {job.model for job in jobs} == {model.name for model in TABLE_1}
    assert {job.gpus for job in jobs if job.model == "ResNet-50"} == {2, 4}
    assert [job.submit_time_s for job in jobs] == sorted(job.submit_time_s for job in jobs)
    assert jobs[-1].submit_time_s <= 2 * 3600


def test_jobs_of_table_1_take_30_to_45_minutes_of_gpu_time():
    workload = GandivaWorkload(jobs=100)
    rates = workload.rates()
    for job in workload.draw(0, rates):
        minutes = (job.total_steps or 0.0) / (rates.rate(job.config, "p40", True) or 1.0) * job.gpus / 60
        assert 29.5 < minutes < 45.5


@pytest.mark.parametrize("models", [TABLE_1, TABLE_2])
def test_the_parts_of_the_models_make_a_whole(models: Any):
    assert sum(model.share for model in models) == pytest.approx(1.0)


def test_pairs_keep_what_the_table_says():
    rates = GandivaWorkload().rates()
    for gpu_type in GPU_TYPES:
        assert rates.packed_rate(("VAE", None, 1), ("VAE", None, 1), gpu_type) == 81.8
        assert rates.packed_rate(("LSTM", None, 1), ("LSTM", None, 1), gpu_type) == pytest.approx(0.42 * 63.8)


@pytest.mark.parametrize("field", [{"jobs": 0}, {"jobs_per_hour": float("nan")}, {"faster": 0.0}, {"kind": "none"}])
def test_nonsense_is_refused(field: dict[str, Any]):
    with pytest.raises(BadInput):
        GandivaWorkload(**field)


def test_the_good_trial_is_where_it_is_asked_for():
    workload = SweepWorkload(trials=10, place=7)
    (planned,) = workload.requests(0)
    trial = planned.event.spec.trial  # type: ignore[attr-defined]
    curves = [
        workload.surface(replace(trial, name=f"0-0-{number}", labels={"trial": str(number)})) for number in range(10)
    ]
    assert [curve.limit > workload.target for curve in curves if curve is not None] == [n == 6 for n in range(10)]
    assert workload.surface(trial) is None, "a job that is no trial reports nothing"


def test_claims_are_measured_or_said_not_to_be():
    found = study(Size(mixed_gpus=8, trace_gpus=8, shared_gpus=16, shrink=40.0))
    results = [Result(spec, execute(spec)) for spec in found.runs()]
    measured = found.measure(results)
    rows = found.judge(measured)
    by_id = {row.claim_id: row for row in rows}
    assert by_id["turns-cost"].verdict is Verdict.HOLDS
    assert by_id["figure18"].verdict is not Verdict.NOT_MEASURED, "so small a cluster gives another number"
    assert by_id["table4-80"].verdict is Verdict.HOLDS, by_id["table4-80"]
    waiting = {each.claim_id for each in found.claims if each.accepted is None}
    assert {row.claim_id for row in rows if row.measured == "–"} >= waiting
    report = report_of([Part(found, "small", results, measured, rows)], "by hand")
    names = [drawing.name for section in report.sections for drawing in section.drawings]
    assert names == ["table3-4", "table3-16", "table4", "early-feedback", "trace-jct"]


def test_the_use_of_gpus_adds_up_where_jobs_share_one():
    workload = GandivaWorkload(jobs=2)
    spec = RunSpec(policy="gandiva", workload=workload, cluster="p100=2")
    first, second = spec.jobs()
    uses = workload.utilisations()
    held = [
        [first.job_id, "t", "p100-000", 0, "p100", 0.0, 12000.0],
        [second.job_id, "t", "p100-000", 0, "p100", 6600.0, 12000.0],
    ]
    alone, together = uses[first.model], min(1.0, uses[first.model] + uses[second.model])
    found = used_gpus(Result(spec, {"jobs": [], "intervals": held}))
    assert found == pytest.approx((alone + together) / 2 / 2), "half of the time together, and one GPU idle"
    assert used_gpus(Result(spec, {"jobs": []})) is None


def test_packs_that_did_not_help_are_counted():
    workload = GandivaWorkload(jobs=2)
    spec = RunSpec(policy="gandiva", workload=workload, cluster="p100=2")
    undone = METRICS["undone_packs"]
    assert undone(Result(spec, {"packs": {"tried": 4, "undone": 1}}), None) == 0.25
    assert undone(Result(spec, {"packs": {"tried": 0, "undone": 0}}), None) is None


def test_jobs_of_entities_come_one_after_the_other():
    workload = HierarchyWorkload()
    jobs = workload.draw(0, workload.rates())
    assert [job.tenant for job in jobs] == ["entity0"] * 6 + ["entity1"] * 6 + ["entity2"] * 6
    assert {b.submit_time_s - a.submit_time_s for a, b in pairwise(jobs)} == {4 * 360.0}
    assert [job.weight for job in jobs[:4]] == [1.0, 2.0, 1.0, 2.0]
