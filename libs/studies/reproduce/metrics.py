"""Figures computed from results: ratios between roles, fairness of finish times, deadlines, shares of entities."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from libs.sim.traces import TraceJob
from libs.studies.experiments.runs import Result
from libs.studies.report.intervals import from_rows, parts
from libs.studies.reproduce.study import Roles

Metric = Callable[[Result], float | None]


def field(name: str) -> Metric:
    """A field of the summary."""
    return lambda result: result.summary.get(name)


def mean_of(results: Iterable[Result], metric: Metric) -> float | None:
    """Over seeds; None when some seed has no value."""
    values = [metric(result) for result in results]
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def ratio(above: str, below: str, metric: Metric) -> Callable[[Roles], float | None]:
    """How many times greater the metric's mean over seeds is in one role than in another."""

    def measured(roles: Roles) -> float | None:
        a, b = mean_of(roles[above], metric), mean_of(roles[below], metric)
        return None if a is None or b is None or b == 0 else a / b

    return measured


def mean(role: str, metric: Metric) -> Callable[[Roles], float | None]:
    """The metric's mean over the seeds of one role."""
    return lambda roles: mean_of(roles[role], metric)


def sustained(above: str, below: str, limit_h: float) -> Callable[[Roles], float | None]:
    """How many times higher the load is at which one role's average completion time reaches a limit."""

    def measured(roles: Roles) -> float | None:
        a, b = load_at(roles[above], limit_h), load_at(roles[below], limit_h)
        return None if a is None or b is None else a / b

    return measured


def load_at(results: Sequence[Result], limit_h: float) -> float | None:
    """The load at which the average completion time reaches the limit, by straight lines between measured loads.

    Where it never does, the highest load that was measured.
    """
    points = _curve(results)
    if not points:
        return None
    for (load, value), (next_load, next_value) in pairwise(points):
        if value < limit_h <= next_value:
            return load + (next_load - load) * (limit_h - value) / (next_value - value)
    return points[0][0] if points[0][1] >= limit_h else points[-1][0]


def _curve(results: Sequence[Result]) -> list[tuple[float, float]]:
    per_load: dict[float, list[float]] = {}
    for result in results:
        load, value = result.spec.jobs_per_hour, result.summary.get("avg_jct_s")
        if load is not None and value is not None:
            per_load.setdefault(load, []).append(value / 3600)
    return [(load, fmean(per_load[load])) for load in sorted(per_load)]


def jobs_by_id(result: Result) -> dict[str, TraceJob]:
    """The jobs as they were drawn."""
    return {job.job_id: job for job in result.spec.jobs()}


def avg_jct_where(chosen: Callable[[TraceJob], bool]) -> Metric:
    """Average completion time in seconds of the measured jobs that are chosen."""

    def measured(result: Result) -> float | None:
        jobs = jobs_by_id(result)
        ended = (row for row in result.measured if row["jct_s"] is not None)
        return _mean(row["jct_s"] for row in ended if chosen(jobs[row["job_id"]]))

    return measured


def has_high_priority(job: TraceJob) -> bool:
    """Whether its weight is above 1."""
    return (job.weight or 1.0) > 1.0


def slo_violations(result: Result) -> float | None:
    """The part of the measured jobs with a deadline that did not end in time."""
    jobs = jobs_by_id(result)
    late = []
    for row in result.measured:
        deadline_s = jobs[row["job_id"]].deadline_s
        if deadline_s is not None:
            late.append(float(row["jct_s"] is None or row["jct_s"] > deadline_s))
    return _mean(late)


def finish_time_fairness(result: Result) -> list[float]:
    """Of each measured job: its time over the time on 1/n of the cluster, n = jobs present while it was, on average.

    On that part of the cluster it would run at the cluster's own mix of GPU types, with no more than a whole
    GPU's time per GPU it needs.
    """
    rates, gpus = result.spec.rates(), result.spec.gpus
    jobs, present, total = jobs_by_id(result), _Present(result.document["jobs"]), sum(gpus.values())
    found = []
    for row in result.measured:
        job = jobs[row["job_id"]]
        if row["jct_s"] is None or row["finish_s"] is None or job.total_steps is None:
            continue
        mixed = sum(n * (rates.rate(job.config, t, consolidated=True) or 0.0) for t, n in gpus.items()) / total
        n = present.mean(row["submit_s"], row["finish_s"])
        if mixed > 0:
            found.append(row["jct_s"] * mixed * min(1.0, total / (n * job.gpus)) / job.total_steps)
    return found


def mean_finish_time_fairness(result: Result) -> float | None:
    """Over the measured jobs."""
    return _mean(finish_time_fairness(result))


class _Present:
    """How many jobs there are at a time, as a step function with its integral."""

    def __init__(self, rows: Iterable[Mapping[str, float | None]]) -> None:
        changes: list[tuple[float, int]] = []
        for row in rows:
            submit_s, finish_s = row["submit_s"], row["finish_s"]
            assert submit_s is not None
            changes.append((submit_s, 1))
            if finish_s is not None:
                changes.append((finish_s, -1))
        changes.sort()
        self._times, self._counts, self._sums = [0.0], [0], [0.0]
        for time_s, change in changes:
            self._sums.append(self._sums[-1] + self._counts[-1] * (time_s - self._times[-1]))
            self._times.append(time_s)
            self._counts.append(self._counts[-1] + change)

    def _until(self, time_s: float) -> float:
        place = bisect_right(self._times, time_s) - 1
        return self._sums[place] + self._counts[place] * (time_s - self._times[place])

    def mean(self, begin_s: float, end_s: float) -> float:
        """On average between two times; at least 1."""
        return max(1.0, (self._until(end_s) - self._until(begin_s)) / (end_s - begin_s)) if end_s > begin_s else 1.0


def entity_progress(result: Result) -> dict[str, float]:
    """{entity: normalised progress of its jobs}: GPU time weighted by how fast each job is on the type it had.

    A GPU-second on a type counts the job's rate there over its rate on the cluster's mix. Until the first job
    ends, so that all entities want GPUs all the time.
    """
    rates, gpus, jobs = result.spec.rates(), result.spec.gpus, jobs_by_id(result)
    ends = [row["finish_s"] for row in result.document["jobs"] if row["finish_s"] is not None]
    until_s, total = min(ends, default=float("inf")), sum(gpus.values())
    progress: dict[str, float] = {}
    for part in parts(from_rows(result.document.get("intervals", ()))):
        job, held_s = jobs[part.interval.job_id], min(part.end_s, until_s) - part.start_s
        if held_s > 0:
            alone = {t: rates.rate(job.config, t, consolidated=True) or 0.0 for t in gpus}
            mixed = sum(n * alone[t] for t, n in gpus.items()) / total
            worth = held_s * part.ratio * alone[part.interval.gpu_type] / mixed
            progress[job.tenant] = progress.get(job.tenant, 0.0) + worth
    return progress


def worst_share(result: Result) -> float | None:
    """The smallest ratio of an entity's part of all progress to its part of all weights; 1 is perfect."""
    progress = entity_progress(result)
    if not progress:
        return None
    weights = {entity: result.spec.tenant_weights.get(entity, 1.0) for entity in progress}
    made, weight = sum(progress.values()), sum(weights.values())
    return min(progress[entity] / made / (weights[entity] / weight) for entity in progress)


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return fmean(known) if known else None
