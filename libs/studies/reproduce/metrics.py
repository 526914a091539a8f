"""What is measured of one run: completion times, fairness, deadlines, shares, use of GPUs, searches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from statistics import fmean

from libs.sim.traces import TraceJob
from libs.studies.experiments.runs import Result
from libs.studies.report.intervals import Interval, Part, from_rows, parts
from libs.studies.reproduce.guest_metrics import GUEST_METRICS
from libs.studies.reproduce.philly_metrics import PHILLY_METRICS

Metric = Callable[[Result, Result | None], float | None]
"""Of a run, and of the run of the isolated policy on the same jobs where the claim names one."""
HOUR_S, MINUTE_S = 3600.0, 60.0
STABLE_MINUTES = (20.0, 200.0)
"""Gandiva's section 6.3 takes the mean use of the GPUs between these."""
SHORT_JOB_S = 100 * MINUTE_S
"""Gandiva's figure 17: the completion times below which its curve is the higher one."""


def _summary(name: str) -> Metric:
    return lambda result, beside: result.summary.get(name)


def jobs_by_id(result: Result) -> dict[str, TraceJob]:
    """The jobs as they were drawn."""
    return {job.job_id: job for job in result.spec.jobs()}


def longest_jct_s(result: Result, beside: Result | None = None) -> float | None:
    """The longest completion time of the measured jobs."""
    return max((row["jct_s"] for row in result.measured if row["jct_s"] is not None), default=None)


def _avg_jct_where(chosen: Callable[[TraceJob], bool]) -> Metric:
    def measured(result: Result, beside: Result | None) -> float | None:
        jobs = jobs_by_id(result)
        ended = (row for row in result.measured if row["jct_s"] is not None)
        return _mean(row["jct_s"] for row in ended if chosen(jobs[row["job_id"]]))

    return measured


def _has_high_priority(job: TraceJob) -> bool:
    return (job.weight or 1.0) > 1.0


def late(result: Result, beside: Result | None = None) -> float | None:
    """The part of the measured jobs with a deadline that did not end in time."""
    jobs = jobs_by_id(result)
    found = []
    for row in result.measured:
        deadline_s = jobs[row["job_id"]].deadline_s
        if deadline_s is not None:
            found.append(float(row["jct_s"] is None or row["jct_s"] > deadline_s))
    return _mean(found)


def finish_time_fairness(result: Result, isolated: Result | None) -> list[float]:
    """Of each measured job: its completion time over the one that it has under the isolated policy.

    As the authors of Gavel compute it: the denominator is from a run of its own, so that a policy under which jobs
    pile up is not measured against the slower share that its own pile leaves.
    """
    if isolated is None:
        return []
    alone = {row["job_id"]: row["jct_s"] for row in isolated.measured}
    pairs = ((row["jct_s"], alone.get(row["job_id"])) for row in result.measured)
    return [jct_s / alone_s for jct_s, alone_s in pairs if jct_s is not None and alone_s]


def _mean_finish_time_fairness(result: Result, isolated: Result | None) -> float | None:
    return _mean(finish_time_fairness(result, isolated))


def entity_progress(result: Result) -> dict[str, float]:
    """{entity: normalised progress of its jobs} while all jobs are there: from the last arrival to the first end.

    A GPU-second on a type counts the job's rate there over its rate on the cluster's mix of types.
    """
    rates, gpus, jobs = result.spec.rates(), result.spec.gpus, jobs_by_id(result)
    from_s = max((row["submit_s"] for row in result.document["jobs"]), default=0.0)
    ends = [row["finish_s"] for row in result.document["jobs"] if row["finish_s"] is not None]
    until_s, total = min(ends, default=float("inf")), sum(gpus.values())
    progress: dict[str, float] = {}
    for part in parts(intervals(result)):
        job, held_s = jobs[part.interval.job_id], min(part.end_s, until_s) - max(part.start_s, from_s)
        if held_s > 0:
            alone = {t: rates.rate(job.config, t, consolidated=True) or 0.0 for t in gpus}
            mixed = sum(n * alone[t] for t, n in gpus.items()) / total
            worth = held_s * part.ratio * alone[part.interval.gpu_type] / mixed
            progress[job.tenant] = progress.get(job.tenant, 0.0) + worth
    return progress


def worst_share(result: Result, beside: Result | None = None) -> float | None:
    """The smallest ratio of an entity's part of all progress to its part of all weights; 1 is perfect."""
    progress = entity_progress(result)
    if not progress:
        return None
    weights = {entity: result.spec.tenant_weights.get(entity, 1.0) for entity in progress}
    made, weight = sum(progress.values()), sum(weights.values())
    return min(progress[entity] / made / (weights[entity] / weight) for entity in progress)


def intervals(result: Result) -> list[Interval]:
    """Which job held which GPU when; empty unless the run has kept it."""
    return from_rows(result.document.get("intervals", ()))


def used_gpus(result: Result, beside: Result | None = None) -> float | None:
    """The mean use of all GPUs in the stable part of the run, 0 to 1; jobs that share a GPU add up to all of it."""
    uses = result.spec.workload.utilisations() if result.spec.workload is not None else {}
    begin_s, end_s = (minute * MINUTE_S for minute in STABLE_MINUTES)
    held = intervals(result)
    if not held or not uses:
        return None
    models = {job_id: job.model for job_id, job in jobs_by_id(result).items()}
    ordered = sorted(parts(held), key=lambda part: (part.interval.gpu, part.start_s, part.end_s))
    stretches = groupby(ordered, key=lambda part: (part.interval.gpu, part.start_s, part.end_s))
    used_s = 0.0
    for (_, from_s, to_s), together in stretches:
        seconds = min(to_s, end_s) - max(from_s, begin_s)
        if seconds > 0:
            used_s += seconds * min(1.0, sum(_use(part, models, uses) for part in together))
    return used_s / ((end_s - begin_s) * sum(result.spec.gpus.values()))


def _use(part: Part, models: dict[str, str], uses: dict[str, float]) -> float:
    return uses.get(models[part.interval.job_id], 1.0)


def _undone_packs(result: Result, beside: Result | None) -> float | None:
    packs = result.document.get("packs", {})
    return packs["undone"] / packs["tried"] if packs.get("tried") else None


def _short_jobs(result: Result, beside: Result | None) -> float | None:
    return _mean(float(row["jct_s"] is not None and row["jct_s"] < SHORT_JOB_S) for row in result.measured)


def _migrations_per_hour(result: Result, beside: Result | None) -> float | None:
    moved: float = sum(row["migrations"] for row in result.document["jobs"])
    hours = (result.summary.get("makespan_s") or 0.0) / HOUR_S
    return moved / hours if hours else None


def found_after_s(result: Result, beside: Result | None = None) -> float | None:
    """From the arrival of a search to a trial that reached the target, mean over searches; None: one found none."""
    took = [each["took_s"] if each["outcome"] == "target_reached" else None for each in result.document["sweeps"]]
    known = [each for each in took if each is not None]
    return fmean(known) if known and len(known) == len(took) else None


def _explored_per_hour(result: Result, beside: Result | None) -> float | None:
    """Trials that have been judged by their curves or have ended, per hour of the search."""
    (sweep,) = result.document["sweeps"]
    hours = (sweep["took_s"] or result.summary["simulated_s"]) / HOUR_S
    return (sweep["pruned"] + sweep["completed"]) / hours if hours else None


METRICS: dict[str, Metric] = {
    "avg_jct_s": _summary("avg_jct_s"),
    "p99_jct_s": _summary("p99_jct_s"),
    "longest_jct_s": longest_jct_s,
    "makespan_s": _summary("makespan_s"),
    "cost": _summary("cost"),
    "avg_time_to_100_steps_s": _summary("avg_time_to_100_steps_s"),
    "avg_jct_high_priority_s": _avg_jct_where(_has_high_priority),
    "avg_jct_low_priority_s": _avg_jct_where(lambda job: not _has_high_priority(job)),
    "late": late,
    "finish_time_fairness": _mean_finish_time_fairness,
    "worst_share": worst_share,
    "used_gpus": used_gpus,
    "undone_packs": _undone_packs,
    "short_jobs": _short_jobs,
    "migrations_per_hour": _migrations_per_hour,
    "found_after_s": found_after_s,
    "explored_per_hour": _explored_per_hour,
    **GUEST_METRICS,
    **PHILLY_METRICS,
}
"""By the names that tables of claims use."""


def _mean(values: Iterable[float]) -> float | None:
    known: Sequence[float] = list(values)
    return fmean(known) if known else None
