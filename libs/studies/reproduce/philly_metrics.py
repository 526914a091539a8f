"""What is measured of runs that keep the numbers of the Philly study: its tables and figures, reclaims, trials."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import fmean

from libs.studies.experiments.runs import Result
from libs.studies.generators.philly import GPUS_PER_SERVER

Measure = Callable[[Result, Result | None], float | None]
LARGE = 4
"""Jobs with more GPUs than that are the study's large ones."""
LONG_DELAY_S = 600.0
"""Figure 4's text looks at jobs that wait for ten minutes or more."""


def _of_study(name: str) -> Measure:
    """A number of the study of the run's log."""

    def measured(result: Result, beside: Result | None) -> float | None:
        value: float | None = result.document.get("study", {}).get(name)
        return value

    return measured


def _mean_by_size(column: str, chosen: Callable[[int], bool]) -> Measure:
    """The mean of a column of figure 10 over jobs of some sizes."""

    def measured(result: Result, beside: Result | None) -> float | None:
        found = result.document.get("study", {})
        sizes = [
            int(name.removeprefix("Figure 10: ").partition(" ")[0])
            for name in found
            if name.startswith("Figure 10: ") and name.endswith(", jobs")
        ]
        rows = [f"Figure 10: {gpus} GPU" for gpus in sizes if chosen(gpus)]
        known = [(found[f"{row}, jobs"], found[f"{row}, {column}"]) for row in rows if f"{row}, {column}" in found]
        jobs = sum(number for number, _ in known)
        return sum(number * value for number, value in known) / jobs if jobs else None

    return measured


def worst_reason(result: Result, beside: Result | None = None) -> float | None:
    """How far the failures of a reason that were found are from those that were drawn, of the reason with most."""
    rows = result.document.get("reasons", {}).values()
    off = [abs(row["found"] - row["drawn"]) / max(1, row["drawn"]) for row in rows]
    return max(off) if off else None


def preemptions(result: Result, beside: Result | None = None) -> float:
    """How often a job was taken off its GPUs."""
    return math.fsum(row["preemptions"] for row in result.measured)


def delay_over_8_s(result: Result, beside: Result | None = None) -> float | None:
    """Mean time from their submission to their first GPUs, of jobs that no server alone holds."""
    gpus = {job.job_id: job.gpus for job in result.spec.jobs()}
    waits = [
        row["first_start_s"] - row["submit_s"]
        for row in result.measured
        if gpus[row["job_id"]] > GPUS_PER_SERVER and row["first_start_s"] is not None
    ]
    return fmean(waits) if waits else None


def gang_jct_s(result: Result, beside: Result | None = None) -> float | None:
    """Mean completion time of jobs with more than one GPU."""
    gpus = {job.job_id: job.gpus for job in result.spec.jobs()}
    found = [row["jct_s"] for row in result.measured if gpus[row["job_id"]] > 1 and row["jct_s"] is not None]
    return fmean(found) if found else None


def lost_gpu_s(result: Result, beside: Result | None = None) -> float | None:
    """GPU seconds of large jobs that ended unsuccessfully."""
    gpus = {job.job_id: job.gpus for job in result.spec.jobs()}
    found = [
        row["gpu_s"] for row in result.measured if gpus[row["job_id"]] > LARGE and row["study_status"] == "unsuccessful"
    ]
    return math.fsum(found) if found else None


def _late(chosen: Callable[[int], bool]) -> Measure:
    """The part of the jobs of some sizes that begin ten minutes or more after their submission."""

    def measured(result: Result, beside: Result | None) -> float | None:
        gpus = {job.job_id: job.gpus for job in result.spec.jobs()}
        waits = [
            row["first_start_s"] - row["submit_s"]
            for row in result.measured
            if chosen(gpus[row["job_id"]]) and row["first_start_s"] is not None
        ]
        return fmean(wait_s >= LONG_DELAY_S for wait_s in waits) if waits else None

    return measured


def _rest(measure: Measure) -> Measure:
    """1 less a part."""

    def measured(result: Result, beside: Result | None) -> float | None:
        value = measure(result, beside)
        return None if value is None else 1.0 - value

    return measured


PHILLY_METRICS: dict[str, Measure] = {
    "fragmentation_large": _of_study("Table 1: fragmentation, >4 GPUs, part"),
    "fragmentation_others": _of_study("Table 1: fragmentation, other jobs, part"),
    "fragmentation_time": _of_study("Table 1: fragmentation, part of waiting time"),
    "fair_share_large": _of_study("Table 1: fair-share, >4 GPUs, part"),
    "fair_share_time": _of_study("Table 1: fair-share, part of waiting time"),
    "within_quota_large": _of_study("Table 1: submitted within the quota, >4 GPUs, part"),
    "within_quota_others": _of_study("Table 1: submitted within the quota, other jobs, part"),
    "beyond_quota_large": _of_study("Table 1: submitted beyond the quota, >4 GPUs, part"),
    "delay_within_quota": _of_study("Table 1: submitted within the quota, mean delay"),
    "passed_jobs": _of_study("Table 5: passed, part of jobs"),
    "killed_jobs": _of_study("Table 5: killed, part of jobs"),
    "unsuccessful_jobs": _of_study("Table 5: unsuccessful, part of jobs"),
    "passed_gpu_time": _of_study("Table 5: passed, part of GPU time"),
    "delay_fewest_servers_8": _of_study("Figure 5: 5-8 GPUs that waited, on fewest servers, mean delay"),
    "delay_more_servers_8": _of_study("Figure 5: 5-8 GPUs that waited, on more servers, mean delay"),
    "retries_large": _mean_by_size("retries per job", lambda gpus: gpus > LARGE),
    "retries_one": _mean_by_size("retries per job", lambda gpus: gpus == 1),
    "unsuccessful_large": _mean_by_size("unsuccessful", lambda gpus: gpus > LARGE),
    "unsuccessful_one": _mean_by_size("unsuccessful", lambda gpus: gpus == 1),
    "worst_reason": worst_reason,
    "out_of_order": _of_study("Section 3.2: decisions, out of order"),
    "large_passed": _of_study("Section 3.2: large jobs passed, part of out of order"),
    "harmless": _of_study("Section 3.2: large jobs passed, harmless"),
    "small_passed": _rest(_of_study("Section 3.2: large jobs passed, part of out of order")),
    "harmful": _rest(_of_study("Section 3.2: large jobs passed, harmless")),
    "empty_servers": _of_study("Section 3.2: servers, empty"),
    "beside_small": _of_study("Section 3.2: gangs, GPU time beside 1-GPU jobs"),
    "idle_gpus": _of_study("Section 3.2: servers, as many as idle GPUs fill"),
    "preemptions": preemptions,
    "delay_over_8_s": delay_over_8_s,
    "late_large": _late(lambda gpus: gpus > LARGE),
    "late_one": _late(lambda gpus: gpus == 1),
    "gang_jct_s": gang_jct_s,
    "lost_gpu_s": lost_gpu_s,
}
"""By the names that tables of claims use."""
