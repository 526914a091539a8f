"""What is measured of runs with guests: times of both classes, interference, use of GPUs, waits of jobs and gangs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from libs.policies.estimation.slowdown import ABSOLUTE_S, RELATIVE_RATIO
from libs.sim.sharing.usage import BINS
from libs.studies.experiments.runs import Result
from libs.studies.generators.antman import GUARANTEED, OPPORTUNISTIC
from libs.studies.report.waiting import Waiting, from_rows

Measure = Callable[[Result, Result | None], float | None]
LEAST_WAIT_S = 1.0
"""Shorter waits count as one second: ratios to none at all say nothing."""
WIDE, NARROW = 8, 4
"""GPUs of a gang: at least, and at most."""


def rows_of(result: Result, tenant: str) -> list[dict[str, Any]]:
    """The jobs of a tenant."""
    named = {job.job_id: job.tenant for job in result.spec.jobs()}
    return [row for row in result.measured if named[row["job_id"]] == tenant]


def _mean_jct_s(tenant: str) -> Measure:
    def measured(result: Result, beside: Result | None) -> float | None:
        times = [row["jct_s"] for row in rows_of(result, tenant) if row["status"] == "SUCCEEDED"]
        return fmean(times) if times else None

    return measured


def _part(tenant: str | None, holds: Callable[[dict[str, Any]], bool]) -> Measure:
    def measured(result: Result, beside: Result | None) -> float | None:
        rows = result.measured if tenant is None else rows_of(result, tenant)
        return sum(map(holds, rows)) / len(rows) if rows else None

    return measured


def guest_speed(result: Result, beside: Result | None = None) -> float | None:
    """Of two jobs: the guest's speed while the owner runs, as a part of its speed alone; it ends after the owner."""
    (guest,), (owner,) = rows_of(result, OPPORTUNISTIC), rows_of(result, GUARANTEED)
    if guest["finish_s"] is None or owner["finish_s"] is None or guest["finish_s"] < owner["finish_s"]:
        return None
    job = next(each for each in result.spec.jobs() if each.job_id == guest["job_id"])
    rate = result.spec.rates().rate(job.config, next(iter(result.spec.gpus)), consolidated=True)
    alone_s = (job.total_steps or 0.0) / (rate or 1.0)
    return float((alone_s - (guest["jct_s"] - owner["jct_s"])) / owner["jct_s"])


def above(result: Result, field: str, bound: float) -> float | None:
    """The part of the time of GPUs in use in which the use is above a bound."""
    seconds = _histogram(result, field)
    return math.fsum(seconds[round(bound * BINS) :]) / math.fsum(seconds) if seconds else None


def mean_use(result: Result, field: str) -> float | None:
    """Of the GPUs in use, over time."""
    seconds = _histogram(result, field)
    if not seconds:
        return None
    centres = [min(1.0, (place + 0.5) / BINS) for place in range(BINS + 1)]
    return math.fsum(a * b for a, b in zip(seconds, centres, strict=True)) / math.fsum(seconds)


def _histogram(result: Result, field: str) -> list[float]:
    return list(result.document.get("sharing", {}).get(field, ()))


def extra_gpus(result: Result, beside: Result | None = None) -> float | None:
    """GPU time that guests have had, each hour times their part of full speed, over that of owners."""
    found = result.document.get("sharing")
    return found["guests_work_s"] / found["owned_s"] if found and found["owned_s"] else None


def slowdowns(result: Result) -> list[tuple[float, float]]:
    """Of each owner that had guests: (seconds more per mini-batch, the same as a part of it)."""
    found = result.document.get("sharing", {}).get("beside", {})
    return [
        (minibatch_s * (seconds / work_s - 1.0), seconds / work_s - 1.0)
        for minibatch_s, seconds, work_s in found.values()
        if work_s > 0
    ]


def _slowed(holds: Callable[[float, float], bool]) -> Measure:
    def measured(result: Result, beside: Result | None) -> float | None:
        found = slowdowns(result)
        return sum(holds(more_s, ratio) for more_s, ratio in found) / len(found) if found else None

    return measured


def waits_s(result: Result, tenant: str | None = None) -> list[float]:
    """Seconds from submission to the first start, ascending, of the jobs that started."""
    rows = result.measured if tenant is None else rows_of(result, tenant)
    return sorted(row["first_start_s"] - row["submit_s"] for row in rows if row["first_start_s"] is not None)


def _mean_wait(tenant: str | None) -> Measure:
    def measured(result: Result, beside: Result | None) -> float | None:
        found = waits_s(result, tenant)
        return max(LEAST_WAIT_S, fmean(found)) if found else None

    return measured


def _wait_at(part: float) -> Measure:
    def measured(result: Result, beside: Result | None) -> float | None:
        found = waits_s(result)
        return max(LEAST_WAIT_S, found[math.ceil(part * len(found)) - 1]) if found else None

    return measured


def gangs(result: Result) -> list[Waiting]:
    """Gangs that waited for some of their GPUs; empty unless the run has kept them."""
    return from_rows(result.document.get("gangs", ()))


def _idle_s(chosen: Callable[[Waiting], bool]) -> Measure:
    def measured(result: Result, beside: Result | None) -> float | None:
        found = [each.idle_s for each in gangs(result) if chosen(each)]
        return fmean(found) if found else None

    return measured


def gang_idle_used(result: Result, beside: Result | None = None) -> float | None:
    """The part of the GPU time that gangs wait with some of their GPUs in which guests run there."""
    found: Sequence[Waiting] = gangs(result)
    idle_s = math.fsum(each.idle_s for each in found)
    return math.fsum(each.used_s for each in found) / idle_s if idle_s > 0 else None


GUEST_METRICS: dict[str, Measure] = {
    "avg_jct_guaranteed_s": _mean_jct_s(GUARANTEED),
    "avg_jct_opportunistic_s": _mean_jct_s(OPPORTUNISTIC),
    "failed_guaranteed": _part(GUARANTEED, lambda row: row["status"] == "FAILED"),
    "preempted": _part(None, lambda row: row["preemptions"] > 0),
    "preempted_opportunistic": _part(OPPORTUNISTIC, lambda row: row["preemptions"] > 0),
    "guest_speed": guest_speed,
    "memory_above_half": lambda result, beside: above(result, "memory_s", 0.5),
    "busy_above_80": lambda result, beside: above(result, "busy_s", 0.8),
    "mean_memory": lambda result, beside: mean_use(result, "memory_s"),
    "mean_busy": lambda result, beside: mean_use(result, "busy_s"),
    "extra_gpus": extra_gpus,
    "not_slowed_by_10_ms": _slowed(lambda more_s, ratio: more_s <= ABSOLUTE_S),
    "not_slowed_by_3_percent": _slowed(lambda more_s, ratio: ratio <= RELATIVE_RATIO),
    "slowed_by_4_percent": _slowed(lambda more_s, ratio: ratio > 0.04 and more_s > ABSOLUTE_S),
    "avg_wait_s": _mean_wait(None),
    "avg_wait_guaranteed_s": _mean_wait(GUARANTEED),
    "p90_wait_s": _wait_at(0.90),
    "p95_wait_s": _wait_at(0.95),
    "gang_idle_wide_s": _idle_s(lambda gang: gang.gpus >= WIDE),
    "gang_idle_narrow_s": _idle_s(lambda gang: 1 < gang.gpus <= NARROW),
    "gang_idle_used": gang_idle_used,
}
"""By the names that tables of claims use."""
