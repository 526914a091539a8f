"""How jobs end, converge and fail: tables 5 and 6, figures 9 and 10 (section 5 of the study)."""

from __future__ import annotations

from collections.abc import Sequence

from libs.inspect.convergence import EPOCHS_OF_KILLED, EPOCHS_OF_PASSED, JobCurve, figure_9
from libs.studies.philly.findings import (
    SIZES,
    Entry,
    Finding,
    Panel,
    Unit,
    lacking,
    part,
    quantile,
    size_of,
    without,
)
from libs.studies.philly.observed import STATUSES, Failure, Needs, Observed, StudyJob


def table_5(observed: Observed) -> Finding:
    """Jobs and their GPU time by final status."""
    title = "Distribution of jobs by their final status"
    ended = [job for job in observed.jobs if job.status]
    if not ended:
        return without("Table 5", title, observed, Needs.STATUS)
    gpu_s = sum(job.gpu_s or 0.0 for job in ended)
    entries = []
    for status in STATUSES:
        those = [job for job in ended if job.status == status]
        entries.append(Entry(status, "jobs", len(those), Unit.COUNT))
        entries.append(Entry(status, "part of jobs", len(those) / len(ended), Unit.RATIO))
        if gpu_s:
            used = sum(job.gpu_s or 0.0 for job in those) / gpu_s
            entries.append(Entry(status, "part of GPU time", used, Unit.RATIO))
    entries.append(Entry("total", "jobs", len(ended), Unit.COUNT))
    entries.append(Entry("not ended, or not known", "jobs", len(observed.jobs) - len(ended), Unit.COUNT))
    return Finding("Table 5", title, tuple(entries), bars=("part of jobs", "part of GPU time"))


def table_6(observed: Observed) -> Finding:
    """Failed attempts by reason: how many, whose, after how long, at which size. Most frequent first."""
    title = "Failures classified into failure reasons"
    found: dict[str, list[tuple[StudyJob, Failure]]] = {}
    for job in observed.jobs:
        for failure in job.failures:
            found.setdefault(failure.reason, []).append((job, failure))
    if not found:
        return without("Table 6", title, observed, Needs.REASONS)
    everything = [each for those in found.values() for each in those]
    total_s, total_gpu_s = _runtime_s(everything), _gpu_s(everything)
    entries = []
    for reason, those in sorted(found.items(), key=lambda each: (-len(each[1]), each[0])):
        entries += [*_demand(reason, those), *_runtimes(reason, those)]
        for column, own, total in (
            ("part of runtime", _runtime_s(those), total_s),
            ("part of GPU time", _gpu_s(those), total_gpu_s),
        ):
            if total:
                entries.append(Entry(reason, column, own / total, Unit.RATIO))
    return Finding("Table 6", title, tuple(entries), bars=("trials",))


def _demand(reason: str, those: Sequence[tuple[StudyJob, Failure]]) -> list[Entry]:
    counts = {
        "trials": len(those),
        "jobs": len({job.job_id for job, _ in those}),
        "users": len({job.user or job.tenant for job, _ in those}),
        **{size: sum(size_of(job.gpus) == size for job, _ in those) for size in SIZES},
    }
    return [Entry(reason, column, count, Unit.COUNT) for column, count in counts.items()]


def _runtimes(reason: str, those: Sequence[tuple[StudyJob, Failure]]) -> list[Entry]:
    minutes = [failure.runtime_s / 60 for _, failure in those if failure.runtime_s is not None]
    percents = (50, 90, 95) if minutes else ()
    return [Entry(reason, f"runtime p{each}", quantile(minutes, each / 100), Unit.MINUTES) for each in percents]


def _runtime_s(those: Sequence[tuple[StudyJob, Failure]]) -> float:
    return sum(failure.runtime_s or 0.0 for _, failure in those)


def _gpu_s(those: Sequence[tuple[StudyJob, Failure]]) -> float:
    return sum((failure.runtime_s or 0.0) * job.gpus for job, failure in those)


def figure_9_of(observed: Observed) -> Finding:
    """The part of the epochs that jobs need to reach their best loss, and to come within 0.1 % of it."""
    title = "Fraction of epochs necessary to achieve a loss"
    entries, panels = [], []
    for status, looked_at in (("passed", EPOCHS_OF_PASSED), ("killed", EPOCHS_OF_KILLED)):
        those = [curve for curve in observed.curves if curve.status == status and curve.epochs > 0]
        if those:
            entries += _convergence(status, looked_at, observed.curves)
            panels.append(Panel(status, _fractions(those), "part of the epochs"))
    if not entries:
        return without("Figure 9", title, observed, Needs.LOSSES)
    return Finding("Figure 9", title, tuple(entries), tuple(panels))


def _convergence(status: str, looked_at: float, curves: Sequence[JobCurve]) -> list[Entry]:
    numbers = figure_9(curves, status, looked_at)
    ratios = {
        "best loss in the last epoch": numbers.best_at_last_ratio,
        f"near the best after {looked_at:.0%} of the epochs": numbers.near_by_ratio,
        "part of GPU time after that": numbers.gpu_time_after_ratio,
    }
    return [
        Entry(status, "jobs", numbers.jobs, Unit.COUNT),
        *(Entry(status, column, ratio, Unit.RATIO) for column, ratio in ratios.items() if ratio is not None),
    ]


def _fractions(curves: Sequence[JobCurve]) -> dict[str, Sequence[float]]:
    return {
        "best loss": [curve.best_epoch / curve.epochs for curve in curves],
        "within 0.1 % of it": [curve.near_epoch / curve.epochs for curve in curves],
    }


def figure_10(observed: Observed) -> Finding:
    """Retries per job, and the part of unsuccessful jobs, by number of GPUs."""
    title = "Retries and unsuccessful jobs by number of GPUs"
    counted = [job for job in observed.jobs if job.status]
    if not counted:
        return without("Figure 10", title, observed, Needs.STATUS, Needs.RETRIES)
    entries = []
    for gpus in sorted({job.gpus for job in counted}):
        row, those = f"{gpus} GPU", [job for job in counted if job.gpus == gpus]
        retries = [job.retries for job in those if job.retries is not None]
        entries.append(Entry(row, "jobs", len(those), Unit.COUNT))
        if retries:
            entries.append(Entry(row, "retries per job", sum(retries) / len(retries), Unit.MEAN))
        entries.append(Entry(row, "unsuccessful", part(job.status == "unsuccessful" for job in those), Unit.RATIO))
    has_retries = any(each.column == "retries per job" for each in entries)
    return Finding(
        "Figure 10",
        title,
        tuple(entries),
        bars=("retries per job", "unsuccessful") if has_retries else ("unsuccessful",),
        missing="" if has_retries else lacking(observed, Needs.RETRIES),
    )
