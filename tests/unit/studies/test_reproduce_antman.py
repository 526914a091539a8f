"""The workloads of the AntMan paper, what is measured of runs with guests, and its study in a very small size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from libs.cli.executing import execute
from libs.contracts.bad_input import BadInput
from libs.contracts.base import Event
from libs.contracts.cluster import TaskPlacement
from libs.contracts.envelope import Envelope
from libs.contracts.jobs import JobClass
from libs.contracts.placement import GangReserved, JobPlaced, Role
from libs.contracts.reasons import Reason
from libs.studies.experiments.runs import Result, RunSpec
from libs.studies.generators.antman import GUARANTEED, OPPORTUNISTIC, AntmanWorkload
from libs.studies.generators.antman_models import FIELDS, MODELS
from libs.studies.report.intervals import Interval
from libs.studies.report.page import page
from libs.studies.report.verdicts import Verdict
from libs.studies.report.waiting import Waiting, waiting_of
from libs.studies.reproduce.antman import AntmanPlan, Size, study
from libs.studies.reproduce.guest_metrics import GUEST_METRICS, slowdowns
from libs.studies.reproduce.reporting import Part, report_of
from libs.studies.reproduce.stated import Arm

TINY = Size(seeds=(0,), reduced=True, trace_jobs=12, week_jobs=12, queue_jobs=12, queue_gpus=8)
WHY = Reason(code="Test", message="a test")


def drawn(**fields: Any) -> Sequence[Any]:
    workload = AntmanWorkload(**fields)
    return workload.draw(0, workload.rates())


def test_the_same_seed_gives_the_same_jobs_of_all_models_in_two_tenants():
    workload = AntmanWorkload(jobs=300)
    rates = workload.rates()
    jobs = workload.draw(3, rates)
    assert jobs == workload.draw(3, rates) != workload.draw(4, rates)
    assert {job.model for job in jobs} == {name for field in FIELDS for name, _ in field}
    classes = {job.tenant: job.job_class for job in jobs}
    assert classes == {GUARANTEED: JobClass.GUARANTEED, OPPORTUNISTIC: JobClass.OPPORTUNISTIC}
    assert [job.submit_time_s for job in jobs] == sorted(job.submit_time_s for job in jobs)


@pytest.mark.parametrize("load", [0.8, 1.6])
def test_the_load_is_what_is_asked_for_while_jobs_arrive(load: float):
    workload = AntmanWorkload(jobs=400, load=load, gpus=64)
    jobs = workload.draw(0, workload.rates())
    asked_s = sum((job.total_steps or 0.0) * MODELS.of(job.model).usual.minibatch_s * job.gpus for job in jobs)
    assert asked_s / (64 * jobs[-1].submit_time_s) == pytest.approx(load, rel=0.05)


def test_packing_knows_beforehand_and_knows_no_classes():
    jobs = drawn(jobs=50, profiled=True)
    assert {job.job_class for job in jobs} == {JobClass.OPPORTUNISTIC}
    espnet = next(job for job in jobs if job.model == "ESPnet")
    assert espnet.profiled_memory_bytes == MODELS.of("ESPnet").peak_bytes
    assert espnet.profiled_utilisation == pytest.approx(0.35 * 1400 / 1700)


def test_a_recorded_trace_keeps_its_times_and_classes(tmp_path: Path):
    file = tmp_path / "t.csv"
    head = "job_id,submit_time_s,tenant,model,batch_size,gpus,total_steps,duration_s,class"
    file.write_text(f"{head}\na,0,default,,,1,,100,guaranteed\nb,5,default,,,1,,999999,opportunistic\n")
    first, second = drawn(kind="queue", trace=str(file))
    assert (first.tenant, second.tenant) == (GUARANTEED, OPPORTUNISTIC)
    rate = 1.0 / MODELS.of(second.model).usual.minibatch_s
    assert second.submit_time_s == 5.0 and second.total_steps == pytest.approx(86400 * rate, abs=1.0), "cut at a day"


@pytest.mark.parametrize("field", [{"kind": "none"}, {"jobs": 0}, {"load": float("nan")}, {"faster": -1.0}])
def test_nonsense_is_refused(field: dict[str, Any]):
    with pytest.raises(BadInput):
        AntmanWorkload(**field)


def envelopes(*events: tuple[float, Event]) -> list[Envelope]:
    return [
        Envelope(id=str(n), source="placement", time_s=time_s, event=event) for n, (time_s, event) in enumerate(events)
    ]


def placed(job_id: str, gpus: list[int], role: str = Role.OWNER) -> JobPlaced:
    gang = [TaskPlacement(node_id="n", gpu_indices=gpus, first_rank=0)]
    return JobPlaced(job_id=job_id, attempt=1, gang=gang, role=role, reason=WHY)


def test_a_gang_waits_for_the_last_of_its_gpus_and_guests_use_the_others():
    reserved = GangReserved(job_id="gang", attempt=1, node_ids=["n"], gpus_held=1, reason=WHY)
    log = envelopes((0.0, placed("owner", [1])), (10.0, reserved), (12.0, placed("guest", [0], Role.GUEST)))
    log += envelopes((50.0, placed("gang", [0, 1])))
    held = [
        Interval("owner", "a", "n", 1, "v100", 0.0, 45.0),
        Interval("guest", "b", "n", 0, "v100", 12.0, 90.0),
    ]
    assert waiting_of(log, held) == [Waiting("gang", 2, idle_s=40.0 + 5.0, used_s=38.0)]


def result_with(sharing: dict[str, Any], gangs: Sequence[Sequence[Any]] = ()) -> Result:
    spec = RunSpec(policy="antman", workload=AntmanWorkload(jobs=2))
    return Result(spec, {"jobs": [], "sharing": sharing, "gangs": [list(gang) for gang in gangs]})


def test_interference_is_counted_by_both_rules():
    beside = {"short": [0.05, 104.0, 100.0], "long": [1.0, 102.0, 100.0], "bad": [0.5, 200.0, 100.0]}
    found = result_with({"beside": beside})
    assert [ratio for _, ratio in slowdowns(found)] == pytest.approx([0.04, 0.02, 1.0])
    assert [more_s for more_s, _ in slowdowns(found)] == pytest.approx([0.002, 0.02, 0.5])
    counted = {name: GUEST_METRICS[name](found, None) for name in GUEST_METRICS if "slowed" in name}
    assert counted == pytest.approx(
        {"not_slowed_by_10_ms": 1 / 3, "not_slowed_by_3_percent": 1 / 3, "slowed_by_4_percent": 1 / 3}
    )


def test_the_use_of_gpus_is_weighted_by_time():
    busy, memory = [0.0] * 21, [0.0] * 21
    busy[2], busy[17] = 75.0, 25.0
    memory[9], memory[10] = 50.0, 50.0
    found = result_with({"busy_s": busy, "memory_s": memory, "owned_s": 80.0, "guests_work_s": 20.0})
    expected = {"busy_above_80": 0.25, "memory_above_half": 0.5, "extra_gpus": 0.25, "mean_busy": 0.3125}
    assert {name: GUEST_METRICS[name](found, None) for name in expected} == pytest.approx(expected)


def test_waits_of_gangs_by_their_width():
    found = result_with({}, [["a", 2, 10.0, 5.0], ["b", 16, 90.0, 70.0]])
    assert GUEST_METRICS["gang_idle_narrow_s"](found, None) == 10.0
    assert GUEST_METRICS["gang_idle_wide_s"](found, None) == 90.0
    assert GUEST_METRICS["gang_idle_used"](found, None) == pytest.approx(0.75)


def test_ways_of_sharing_are_options_of_runs():
    plan = AntmanPlan(TINY)
    (spec,) = (point.spec for point in plan.points(Arm(workload="trace/packing", policy="antman", at=[1.3]), None))
    assert spec.max_guests == 3.0 and spec.beside == "leave"
    assert isinstance(spec.workload, AntmanWorkload) and spec.workload.profiled
    with pytest.raises(ValueError, match="nothing"):
        plan.points(Arm(workload="nothing/antman", policy="antman"), None)


def test_two_jobs_on_one_gpu_and_the_report():
    """Table 2 and figure 12 need four seconds; a page with both has every row and the pictures."""
    some = study(TINY).only(["table2", "fig12", "fig10", "fig5"])
    results = [Result(spec, execute(spec)) for spec in some.runs()]
    measured = some.measure(results)
    rows = {row.claim_id: row for row in some.judge(measured)}
    ways = [f"table2-{way}" for way in ("preempt", "fifo", "pack", "owner", "guest")]
    for claim_id in (*ways, "fig12-owner", "fig12-guest"):
        assert rows[claim_id].verdict is Verdict.HOLDS, rows[claim_id]
    assert rows["fig10-trading"].verdict is Verdict.HOLDS
    text = page(report_of([Part(some, "tiny", results, measured, list(rows.values()))], "by hand"))
    assert all(claim_id in text for claim_id in rows) and "A pair on one GPU" in text
    assert "VGG16 0.23 %; the paper has at most 0.4 %" in text, "what the costs of figure 11a come to once a minute"


def test_the_whole_study_in_a_tiny_size():
    whole = study(TINY)
    results = [Result(spec, execute(spec)) for spec in whole.runs()]
    rows = whole.judge(whole.measure(results))
    waiting = [claim.claim_id for claim in whole.claims if claim.stated.waits]
    assert {row.claim_id for row in rows if row.verdict is Verdict.INCOMPLETE} == set()
    assert waiting == [row.claim_id for row in rows if row.claim_id in waiting and row.measured == "–"]
    text = page(report_of([Part(whole, "tiny", results, whole.measure(results), rows)], "by hand"))
    assert "Use of GPUs over a week" in text and "Completion times as the load grows".lower() in text.lower()
