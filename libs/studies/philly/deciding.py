"""Out-of-order decisions and empty servers (section 3.2 of the study), delays by number of servers (figure 5)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from libs.studies.philly.findings import Entry, Finding, Unit, lacking, part, without
from libs.studies.philly.observed import Load, Needs, Observed, Start, StudyJob

LARGE = 4
"""Jobs with more GPUs than that are the study's large ones."""
FEW = 8
"""Figure 5 divides the large ones here."""
IN_USE = (0.6, 0.74)
"""What counts as two thirds of the GPUs in use."""


def section_3_2(observed: Observed) -> Finding:
    """How often a job is placed before one that waits longer, how often that is harmless, and how many servers are
    empty."""
    title = "Out-of-order decisions and empty servers"
    entries = [*_decisions(observed.starts), *_empty(observed.loads)]
    if not entries:
        return without("Section 3.2", title, observed, Needs.STARTS)
    if observed.beside_small_ratio is not None:
        entries.append(Entry("gangs", "GPU time beside 1-GPU jobs", observed.beside_small_ratio, Unit.RATIO))
    missing = "" if observed.starts else lacking(observed, Needs.STARTS)
    return Finding("Section 3.2", title, tuple(entries), bars=("out of order", "harmless", "empty"), missing=missing)


def _decisions(starts: Sequence[Start]) -> list[Entry]:
    if not starts:
        return []
    passing = [start for start in starts if start.passed_gpus]
    return [
        Entry("decisions", "all", len(starts), Unit.COUNT),
        Entry("decisions", "out of order", len(passing) / len(starts), Unit.RATIO),
        *_passing("large jobs passed", [start for start in passing if start.passed_gpus > LARGE], passing),
    ]


def _passing(row: str, those: Sequence[Start], every: Sequence[Start]) -> list[Entry]:
    if not those:
        return []
    return [
        Entry(row, "part of out of order", len(those) / len(every), Unit.RATIO),
        Entry(row, "harmless", part(not start.delays for start in those), Unit.RATIO),
    ]


def _empty(loads: Sequence[Load]) -> list[Entry]:
    low, high = IN_USE
    chosen = [each for each in loads if low <= each.used_ratio <= high]
    total_s = sum(each.seconds for each in chosen)
    if not total_s:
        return []
    empty, used = (
        sum(ratio * each.seconds for each, ratio in zip(chosen, ratios, strict=True)) / total_s
        for ratios in ([each.empty_ratio for each in chosen], [each.used_ratio for each in chosen])
    )
    return [
        Entry("servers", "empty", empty, Unit.RATIO),
        Entry("servers", "as many as idle GPUs fill", 1.0 - used, Unit.RATIO),
    ]


def figure_5(observed: Observed) -> Finding:
    """Mean delay of large jobs by the number of servers that they were first placed on."""
    title = "Queueing delay of large jobs by number of servers"
    known = [job for job in observed.jobs if job.gpus > LARGE and job.servers and job.delay_s is not None]
    if not known and observed.lacks:
        return without("Figure 5", title, observed, Needs.SERVERS, Needs.DELAY)
    if not known:
        return Finding("Figure 5", title, missing=f"jobs with more than {LARGE} GPUs that began (there is none)")
    entries = []
    for name, those in (
        (f"{LARGE + 1}-{FEW} GPUs", [job for job in known if job.gpus <= FEW]),
        (f">{FEW} GPUs", [job for job in known if job.gpus > FEW]),
    ):
        for servers in sorted({job.servers for job in those if job.servers}):
            row, spread = f"{name}, {servers} servers", [job for job in those if job.servers == servers]
            entries.append(Entry(row, "jobs", len(spread), Unit.COUNT))
            entries.append(Entry(row, "mean delay", fmean(map(_minutes, spread)), Unit.MINUTES))
        entries += _near_and_spread(name, those)
    return Finding("Figure 5", title, tuple(entries), bars=("mean delay",))


def _near_and_spread(name: str, those: Sequence[StudyJob]) -> list[Entry]:
    """Of the jobs that waited at all: those on as few servers as they fit on in whole servers, and the others."""
    waited = [job for job in those if _minutes(job) > 0]
    found = {
        "on fewest servers": [job for job in waited if not _is_spread(job)],
        "on more servers": [job for job in waited if _is_spread(job)],
    }
    return [
        Entry(f"{name} that waited, {where}", "mean delay", fmean(map(_minutes, jobs)), Unit.MINUTES)
        for where, jobs in found.items()
        if jobs
    ]


def _is_spread(job: StudyJob) -> bool:
    return (job.servers or 0) > -(-job.gpus // FEW)


def _minutes(job: StudyJob) -> float:
    return (job.delay_s or 0.0) / 60
