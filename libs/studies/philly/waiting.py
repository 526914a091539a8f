"""How long jobs run and wait, and why: table 1, figures 3 and 4 (section 3 of the study)."""

from __future__ import annotations

from collections import Counter
from statistics import fmean

from libs.studies.philly.findings import SIZES, Entry, Finding, Panel, Unit, part, quantile, size_of, without
from libs.studies.philly.observed import Needs, Observed, StudyJob

LEAST_RUN_S = 60.0
"""Table 1 leaves out jobs that ran for a shorter time."""
LONG_DELAY_S = 600.0
WEEK_S = 7 * 86400.0
MOST_TENANTS = 5
LARGE = 4
"""Jobs with more GPUs than that are the study's large ones."""
FAIR_SHARE, FRAGMENTATION = "fair-share", "fragmentation"
BEYOND, WITHIN = "submitted beyond the quota", "submitted within the quota"


def table_1(observed: Observed) -> Finding:
    """How often jobs waited for their share and for GPUs near each other, and for how long."""
    title = "Frequencies of two types of queueing delay"
    if Needs.CAUSES in observed.lacks:
        return without("Table 1", title, observed, Needs.CAUSES)
    jobs = [job for job in observed.jobs if (job.run_s or 0.0) >= LEAST_RUN_S]
    if not any(job.fair_share_s > 0 or job.fragmentation_s > 0 for job in jobs):
        return Finding("Table 1", title, missing="jobs that waited and ran for a minute (there is none)")
    entries = []
    for column, those in (
        (">4 GPUs", [job for job in jobs if job.gpus > LARGE]),
        ("other jobs", [job for job in jobs if job.gpus <= LARGE]),
    ):
        entries += _occurrences(column, those) + _by_quota(column, those)
    within = [job.delay_s / 60 for job in jobs if job.within_quota and job.delay_s is not None]
    if within:
        entries.append(Entry(WITHIN, "mean delay", fmean(within), Unit.MINUTES))
    waited = {FAIR_SHARE: sum(job.fair_share_s for job in jobs), FRAGMENTATION: sum(j.fragmentation_s for j in jobs)}
    total = sum(waited.values())
    entries += [Entry(name, "part of waiting time", seconds / total, Unit.RATIO) for name, seconds in waited.items()]
    bars = (">4 GPUs, part", "other jobs, part", "part of waiting time")
    return Finding("Table 1", title, tuple(entries), bars=bars)


def _occurrences(column: str, jobs: list[StudyJob]) -> list[Entry]:
    counts = {
        FAIR_SHARE: sum(job.fair_share_s > 0 for job in jobs),
        FRAGMENTATION: sum(job.fragmentation_s > 0 for job in jobs),
    }
    total = sum(counts.values())
    entries = [Entry(name, column, count, Unit.COUNT) for name, count in counts.items()]
    return entries + [
        Entry(name, f"{column}, part", count / total, Unit.RATIO) for name, count in counts.items() if total
    ]


def _by_quota(column: str, jobs: list[StudyJob]) -> list[Entry]:
    """All jobs, delayed or not, by whether there was room for them within the quota when they were submitted.

    The study counts 93,524 delays of 96,260 jobs, so that nearly every job has one, be it as short as a look of its
    scheduler.
    """
    known = [job for job in jobs if job.within_quota is not None]
    counts = {
        BEYOND: sum(not job.within_quota for job in known),
        WITHIN: sum(bool(job.within_quota) for job in known),
    }
    entries = [Entry(name, column, count, Unit.COUNT) for name, count in counts.items() if known]
    return entries + [
        Entry(name, f"{column}, part", count / len(known), Unit.RATIO) for name, count in counts.items() if known
    ]


def figure_3(observed: Observed) -> Finding:
    """Run times by size."""
    title = "Run times by size"
    known = {size: [job.run_s for job in observed.jobs if size_of(job.gpus) == size and job.run_s] for size in SIZES}
    curves = {size: [seconds / 60 for seconds in values if seconds] for size, values in known.items()}
    curves = {size: values for size, values in curves.items() if values}
    if not curves:
        return without("Figure 3", title, observed, Needs.GPU_TIME)
    entries = [entry for size, values in curves.items() for entry in _times(size, values)]
    every = [value for values in curves.values() for value in values]
    entries.append(Entry("all jobs", "longer than a week", part(60 * value > WEEK_S for value in every), Unit.RATIO))
    return Finding("Figure 3", title, tuple(entries), (Panel("", curves, "run time (minutes)", logarithmic=True),))


def figure_4(observed: Observed) -> Finding:
    """Delays before jobs began, by size, in the virtual clusters with most jobs."""
    title = "Queueing delay by size, in the largest virtual clusters"
    begun = [job for job in observed.jobs if job.delay_s is not None]
    if not begun:
        return without("Figure 4", title, observed, Needs.DELAY)
    largest = [tenant for tenant, _ in Counter(job.tenant for job in begun).most_common(MOST_TENANTS)]
    entries, panels = [], []
    for tenant in largest:
        curves = {
            size: [job.delay_s / 60 for job in begun if job.delay_s is not None and _is_of(job, tenant, size)]
            for size in SIZES
        }
        curves = {size: values for size, values in curves.items() if values}
        panels.append(Panel(tenant, curves, "queueing delay (minutes)", logarithmic=True))
        for size, values in curves.items():
            row = f"{tenant}, {size}"
            late = part(60 * value >= LONG_DELAY_S for value in values)
            entries += [*_times(row, values), Entry(row, "at least 10 min", late, Unit.RATIO)]
    return Finding("Figure 4", title, tuple(entries), tuple(panels))


def _is_of(job: StudyJob, tenant: str, size: str) -> bool:
    return job.tenant == tenant and size_of(job.gpus) == size


def _times(row: str, minutes: list[float]) -> list[Entry]:
    return [
        Entry(row, "jobs", len(minutes), Unit.COUNT),
        *(Entry(row, f"p{percent}", quantile(minutes, percent / 100), Unit.MINUTES) for percent in (50, 90, 99)),
    ]
