"""The Philly study of a log or a trace: every number against one computed by hand, and what is missing is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from libs.contracts.cluster import TaskPlacement
from libs.inspect.convergence import JobCurve
from libs.inspect.sources import open_log
from libs.lifecycle.books import Holding
from libs.sim.traces import parse_trace, read_trace
from libs.studies.philly.deciding import figure_5, section_3_2
from libs.studies.philly.ending import figure_9_of, figure_10, table_5, table_6
from libs.studies.philly.findings import Finding
from libs.studies.philly.from_log import observed_log
from libs.studies.philly.from_trace import NEVER, observed_trace
from libs.studies.philly.loads import beside_small, loads_of
from libs.studies.philly.observed import Failure, Host, Load, Needs, Observed, Start, StudyJob, Use
from libs.studies.philly.study import lines, report, study, summary
from libs.studies.philly.using import figure_8, table_2, table_4
from libs.studies.philly.waiting import figure_3, figure_4, table_1
from libs.studies.report.page import page

GOLDEN = Path(__file__).parents[2] / "golden" / "cell.jsonl"
DATA = next((each / "shared" / "data" for each in GOLDEN.parents if (each / "shared" / "data").is_dir()), None)
TABLES_AND_FIGURES = ["Table 1", "Table 2", "Table 4", "Table 5", "Table 6"] + [
    f"Figure {number}" for number in (3, 4, 5, 8, 9, 10)
]
TABLES_AND_FIGURES.append("Section 3.2")


def job(job_id: str, gpus: int = 1, **more: object) -> StudyJob:
    return StudyJob(job_id=job_id, tenant=str(more.pop("tenant", "vision")), gpus=gpus, **more)  # type: ignore[arg-type]


def observed(*jobs: StudyJob, **more: object) -> Observed:
    return Observed(source="test", jobs=list(jobs), **more)  # type: ignore[arg-type]


def values(found: Finding, row: str) -> dict[str, float]:
    return {each.column: each.value for each in found.entries if each.row == row}


def test_table_1_counts_jobs_by_what_they_waited_for_and_leaves_out_those_that_ran_for_less_than_a_minute():
    found = table_1(
        observed(
            job("a", 8, run_s=600, fair_share_s=10, fragmentation_s=90),
            job("b", 16, run_s=600, fragmentation_s=60),
            job("c", 1, run_s=60, fair_share_s=40),
            job("d", 1, run_s=59, fair_share_s=1000),
            job("e", 4, run_s=600),
        )
    )

    assert values(found, "fair-share") == {
        ">4 GPUs": 1,
        "other jobs": 1,
        ">4 GPUs, part": pytest.approx(1 / 3),
        "other jobs, part": 1.0,
        "part of waiting time": 0.25,
    }
    assert found.value("fragmentation", ">4 GPUs") == 2
    assert found.value("fragmentation", "part of waiting time") == 0.75


def test_table_1_counts_every_job_by_what_its_quota_had_left():
    jobs = [
        job("a", 8, run_s=600, within_quota=True, fragmentation_s=90, delay_s=90),
        job("b", 16, run_s=600, within_quota=False),
    ]
    jobs += [
        job("c", 8, run_s=600, within_quota=True, delay_s=30),
        job("d", 8, run_s=10, within_quota=False),
        job("e", run_s=600),
    ]
    found = table_1(observed(*jobs))

    assert values(found, "submitted within the quota") == {
        ">4 GPUs": 2,
        ">4 GPUs, part": pytest.approx(2 / 3),
        "mean delay": 1.0,
    }
    assert values(found, "submitted beyond the quota")[">4 GPUs"] == 1


def test_table_2_weighs_by_gpus_and_time():
    found = table_2(
        observed(
            job("a", 1, status="passed", uses=(Use(0.5, 60, 1), Use(1.0, 60, 1))),
            job("b", 4, status="killed", uses=(Use(0.2, 60, 1),)),
            job("c", 4, status="passed"),
        )
    )

    assert values(found, "1 GPU") == {"passed": 0.75, "all": 0.75}
    assert values(found, "4 GPU") == {"killed": pytest.approx(0.2), "all": pytest.approx(0.2)}
    assert found.value("all", "all") == pytest.approx((0.5 + 1.0 + 4 * 0.2) / 6)


def test_table_4_is_about_16_gpu_jobs_by_the_servers_they_were_on():
    found = table_4(
        observed(
            job("a", 16, uses=(Use(0.4, 60, 2), Use(0.8, 180, 2), Use(0.1, 60, 4))),
            job("b", 8, uses=(Use(1.0, 60, 1),)),
        )
    )

    assert values(found, "2 servers") == {"mean": pytest.approx(0.7), "p50": 0.4, "p90": 0.8, "p95": 0.8}
    assert found.value("4 servers", "mean") == pytest.approx(0.1)
    assert found.value("1 servers", "mean") is None


def test_table_5_counts_jobs_and_their_gpu_time():
    found = table_5(
        observed(
            job("a", 2, status="passed", run_s=100),
            job("b", 6, status="killed", run_s=100),
            job("c", 1, status="passed", run_s=0),
            job("d", 8, run_s=1000),
        )
    )

    assert values(found, "passed") == {"jobs": 2, "part of jobs": pytest.approx(2 / 3), "part of GPU time": 0.25}
    assert values(found, "unsuccessful") == {"jobs": 0, "part of jobs": 0.0, "part of GPU time": 0.0}
    assert found.value("total", "jobs") == 3
    assert found.value("not ended, or not known", "jobs") == 1


def test_table_6_counts_attempts_jobs_and_users_and_adds_up_what_they_cost():
    inputs, oom = Failure("incorrect_inputs", 120), Failure("cpu_out_of_memory", 360)
    found = table_6(
        observed(
            job("a", 1, user="ann", failures=(inputs, inputs)),
            job("b", 8, user="bob", failures=(oom, Failure("incorrect_inputs", None))),
        )
    )

    assert [each.row for each in found.entries if each.column == "trials"] == ["incorrect_inputs", "cpu_out_of_memory"]
    assert values(found, "incorrect_inputs") == {
        "trials": 3,
        "jobs": 2,
        "users": 2,
        "1 GPU": 2,
        "2-4 GPUs": 0,
        ">4 GPUs": 1,
        "runtime p50": 2.0,
        "runtime p90": 2.0,
        "runtime p95": 2.0,
        "part of runtime": 0.4,
        "part of GPU time": pytest.approx(240 / (240 + 8 * 360)),
    }


def test_figure_3_has_the_run_times_of_each_size():
    week_s = 7 * 86400.0
    found = figure_3(
        observed(job("a", 1, run_s=60), job("b", 1, run_s=600), job("c", 5, run_s=week_s + 1), job("d", 2))
    )

    assert values(found, "1 GPU") == {"jobs": 2, "p50": 1.0, "p90": 10.0, "p99": 10.0}
    assert values(found, "2-4 GPUs") == {}
    assert found.value("all jobs", "longer than a week") == pytest.approx(1 / 3)


def test_figure_4_has_the_delays_of_the_five_largest_virtual_clusters():
    small = [job(f"s{number}", tenant=f"t{number}", delay_s=1.0) for number in range(6)]
    found = figure_4(observed(job("a", delay_s=600), job("b", delay_s=0.0), job("c"), *small))

    assert [panel.title for panel in found.panels] == ["vision", "t0", "t1", "t2", "t3"]
    assert values(found, "vision, 1 GPU") == {"jobs": 2, "p50": 0.0, "p90": 10.0, "p99": 10.0, "at least 10 min": 0.5}


def test_figure_5_has_the_delays_of_large_jobs_by_their_servers():
    jobs = [
        job("a", 16, servers=2, delay_s=600.0),
        job("b", 16, servers=2, delay_s=0.0),
        job("c", 16, servers=4, delay_s=120.0),
        job("d", 8, servers=2, delay_s=60.0),
        job("e", 4, servers=4, delay_s=999.0),
    ]
    found = figure_5(observed(*jobs))

    assert values(found, ">8 GPUs, 2 servers") == {"jobs": 2, "mean delay": 5.0}
    assert values(found, ">8 GPUs, 4 servers") == {"jobs": 1, "mean delay": 2.0}
    assert values(found, "5-8 GPUs, 2 servers") == {"jobs": 1, "mean delay": 1.0}
    assert values(found, ">8 GPUs that waited, on fewest servers") == {"mean delay": 10.0}
    assert values(found, ">8 GPUs that waited, on more servers") == {"mean delay": 2.0}
    assert figure_5(observed(job("a", 4, servers=1, delay_s=0.0))).missing


def test_section_3_2_counts_decisions_and_empty_servers_at_two_thirds():
    starts = [Start(), Start(8, delays=True), Start(16), Start(1)]
    loads = [Load(0.5, 0.4, 100.0), Load(0.7, 0.1, 30.0), Load(0.62, 0.2, 10.0)]
    found = section_3_2(observed(starts=starts, loads=loads))

    assert values(found, "decisions") == {"all": 4, "out of order": 0.75}
    assert values(found, "large jobs passed") == {"part of out of order": pytest.approx(2 / 3), "harmless": 0.5}
    assert values(found, "servers") == {
        "empty": pytest.approx(0.125),
        "as many as idle GPUs fill": pytest.approx(0.32),
    }
    assert "before which waiting jobs others were placed" in section_3_2(observed(loads=loads)).missing


def test_loads_are_the_stretches_between_changes_and_shared_gpus_count_once():
    def held(job_id: str, node_id: str, gpus: list[int], begin_s: float, end_s: float | None) -> Holding:
        gang = [TaskPlacement(node_id=node_id, gpu_indices=gpus, first_rank=0)]
        return Holding(job_id=job_id, tenant="t", gang=gang, widths=[], begin_s=begin_s, end_s=end_s)

    holdings = [held("a", "n1", [0, 1], 10.0, 30.0), held("b", "n1", [1], 20.0, None), held("c", "n2", [0], 20.0, 30.0)]
    found = loads_of(holdings, {"n1": 2, "n2": 2}, 50.0)

    assert found == [Load(0.0, 1.0, 10.0), Load(0.5, 0.5, 10.0), Load(0.75, 0.0, 10.0), Load(0.25, 0.5, 20.0)]


def test_how_long_gangs_had_gpus_beside_small_jobs():
    def held(job_id: str, node_id: str, gpus: int, begin_s: float, end_s: float | None) -> Holding:
        gang = [TaskPlacement(node_id=node_id, gpu_indices=list(range(gpus)), first_rank=0)]
        return Holding(job_id=job_id, tenant="t", gang=gang, widths=[("v100", gpus)], begin_s=begin_s, end_s=end_s)

    gangs = [held("g", "n1", 4, 0.0, 30.0), held("h", "n2", 2, 0.0, None)]
    assert beside_small([*gangs, held("s", "n1", 1, 10.0, 20.0)], 40.0) == pytest.approx(40 / 200)
    assert beside_small([held("s", "n1", 1, 10.0, 20.0)], 40.0) is None


def test_figure_8_has_the_servers_cpus_and_memory():
    found = figure_8(observed(hosts=[Host(0.1, 0.9), Host(0.3, 0.5)]))

    assert values(found, "CPU") == {"mean": pytest.approx(0.2), "p50": 0.1, "p90": 0.3}
    assert values(found, "memory") == {"mean": pytest.approx(0.7), "p50": 0.5, "p90": 0.9}


def test_figure_9_has_its_four_numbers_for_passed_and_for_killed_jobs():
    passed = JobCurve(job_id="a", status="passed", epochs=10, best_epoch=10, near_epoch=4, gpu_s=100, gpu_s_after=60)
    found = figure_9_of(observed(curves=[passed]))

    assert values(found, "passed") == {
        "jobs": 1,
        "best loss in the last epoch": 1.0,
        "near the best after 40% of the epochs": 1.0,
        "part of GPU time after that": 0.6,
    }
    [panel] = found.panels
    assert panel.curves == {"best loss": [1.0], "within 0.1 % of it": [0.4]}


def test_figure_10_has_retries_and_unsuccessful_jobs_by_gpus():
    jobs = [
        job("a", 1, status="passed", retries=0),
        job("b", 1, status="unsuccessful", retries=3),
        job("c", 8, status="unsuccessful"),
    ]
    found = figure_10(observed(*jobs))

    assert values(found, "1 GPU") == {"jobs": 2, "retries per job": 1.5, "unsuccessful": 0.5}
    assert values(found, "8 GPU") == {"jobs": 1, "unsuccessful": 1.0}
    assert not found.missing
    assert "how often jobs were tried again" in figure_10(observed(jobs[2])).missing


def test_of_nothing_everything_is_named_as_missing():
    findings = study(observed())

    assert [each.where for each in findings] == TABLES_AND_FIGURES
    assert all(each.missing and not each.entries for each in findings)
    assert len(lines(findings)) == len(findings)
    assert "Not in the data: Table 1, Table 2" in page(report(observed(), findings, "a test"))


@pytest.fixture(scope="module")
def golden() -> Observed:
    with open_log(str(GOLDEN), cell="golden") as log:
        return observed_log(log, "cell.jsonl")


def test_a_log_tells_of_waits_ends_and_failures(golden: Observed):
    findings = {each.where: each for each in study(golden)}

    held = [where for where, found in findings.items() if found.entries]
    assert held == ["Table 1", "Table 5", "Table 6", "Figure 3", "Figure 4", "Figure 10", "Section 3.2"]
    ended = sum(bool(each.status) for each in golden.jobs)
    assert findings["Table 5"].value("total", "jobs") == ended > 0
    failures = sum(len(each.failures) for each in golden.jobs)
    assert sum(each.value for each in findings["Table 6"].entries if each.column == "trials") == failures > 0
    assert all(each.runtime_s is not None for job in golden.jobs for each in job.failures)
    [large] = [each for each in golden.jobs if each.gpus == 16]
    assert not large.within_quota and all(each.within_quota for each in golden.jobs if each.tenant == "research")


def test_a_logs_page_has_a_plot_for_all_that_it_holds_and_needs_no_other_file(golden: Observed):
    findings = study(golden)
    made = page(report(golden, findings, "sanjaya analyze cell.jsonl"))

    assert made.count("<figure") == sum(bool(each.entries) for each in findings)
    assert 'src="http' not in made and "<script" not in made
    assert "Missing: how busy GPUs were, per job" in made
    assert summary(golden, findings) == f"{len(golden.jobs)} jobs; 7 of 12 tables and figures of the study"


TRACE = """job_id,submit_time_s,tenant,model,batch_size,gpus,total_steps,duration_s,status,attempts,queue_s
a,0,vision,,,1,,600,Succeeded,1,30
b,5,vision,,,8,,60,failed,3,900
c,9,vision,,,2,,60,running,,
"""


def test_a_trace_tells_what_its_columns_hold():
    found = {each.where: each for each in study(observed_trace(parse_trace(TRACE.splitlines(), "t.csv"), "t.csv"))}

    assert found["Table 5"].value("unsuccessful", "part of GPU time") == pytest.approx(480 / 1080)
    assert found["Table 5"].value("not ended, or not known", "jobs") == 1
    assert found["Figure 4"].value("vision, >4 GPUs", "p50") == 15.0
    assert found["Figure 10"].value("8 GPU", "retries per job") == 2.0
    assert "a log does" in found["Table 1"].missing


@pytest.mark.skipif(DATA is None, reason="the published traces are not here")
def test_the_alibaba_trace_has_statuses_and_delays():
    assert DATA is not None
    trace = read_trace(DATA / "traces" / "alibaba2023-early.csv", warn=lambda sentence: None)
    findings = {each.where: each for each in study(observed_trace(trace, "alibaba2023-early.csv"))}

    assert [where for where, found in findings.items() if found.entries] == [
        "Table 5",
        "Figure 3",
        "Figure 4",
        "Figure 10",
    ]
    assert findings["Figure 10"].missing.startswith("how often jobs were tried again")
    assert findings["Figure 5"].missing == f"{Needs.SERVERS.value} ({NEVER[Needs.SERVERS]})", "the delays are there"
    assert all(found.entries or found.missing for found in findings.values())
