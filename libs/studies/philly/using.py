"""How busy GPUs and servers are: tables 2 and 4, figure 8 (section 4 of the study)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from libs.studies.philly.findings import Entry, Finding, Panel, Unit, lacking, quantile, without
from libs.studies.philly.observed import STATUSES, Needs, Observed, StudyJob, Use

WIDE = 16
"""GPUs of the jobs that table 4 is about."""


def table_2(observed: Observed) -> Finding:
    """Mean GPU utilisation by size and status; jobs count by their GPUs and for as long as they were measured."""
    title = "Mean GPU utilisation for different job sizes"
    measured = [job for job in observed.jobs if job.uses]
    if not measured:
        return without("Table 2", title, observed, Needs.USE)
    entries = []
    for row, those in (*_by_size(measured), ("all", measured)):
        columns = [(status, [job for job in those if job.status == status]) for status in STATUSES]
        for column, chosen in (*columns, ("all", those)):
            if chosen:
                entries.append(Entry(row, column, _mean_use(chosen), Unit.RATIO))
    return Finding("Table 2", title, tuple(entries), bars=("all",))


def _by_size(jobs: Sequence[StudyJob]) -> list[tuple[str, list[StudyJob]]]:
    sizes = sorted({job.gpus for job in jobs})
    return [(f"{size} GPU", [job for job in jobs if job.gpus == size]) for size in sizes]


def _mean_use(jobs: Iterable[StudyJob]) -> float:
    weighted = [(use.ratio, use.window_s * job.gpus) for job in jobs for use in job.uses]
    total = sum(weight for _, weight in weighted)
    return sum(ratio * weight for ratio, weight in weighted) / total if total else 0.0


def table_4(observed: Observed) -> Finding:
    """GPU utilisation of 16-GPU jobs by the number of servers that they are spread over."""
    title = f"GPU utilisation of {WIDE}-GPU jobs by number of servers"
    uses: dict[int, list[Use]] = {}
    for job in observed.jobs:
        for use in job.uses if job.gpus == WIDE else ():
            uses.setdefault(use.servers, []).append(use)
    if not uses:
        return Finding("Table 4", title, missing=_why_not(observed))
    entries = [entry for servers in sorted(uses) for entry in _spread(f"{servers} servers", uses[servers])]
    return Finding("Table 4", title, tuple(entries), bars=("mean", "p50", "p90", "p95"))


def _why_not(observed: Observed) -> str:
    if Needs.USE in observed.lacks:
        return lacking(observed, Needs.USE, Needs.SERVERS)
    if any(job.gpus == WIDE for job in observed.jobs):
        return f"{Needs.USE.value} (nothing of it was recorded of the {WIDE}-GPU jobs)"
    return f"jobs with {WIDE} GPUs (there is none)"


def _spread(row: str, uses: Sequence[Use]) -> list[Entry]:
    ratios, total_s = [use.ratio for use in uses], sum(use.window_s for use in uses)
    mean = sum(use.ratio * use.window_s for use in uses) / total_s if total_s else 0.0
    return [
        Entry(row, "mean", mean, Unit.RATIO),
        *(Entry(row, f"p{percent}", quantile(ratios, percent / 100), Unit.RATIO) for percent in (50, 90, 95)),
    ]


def figure_8(observed: Observed) -> Finding:
    """CPU and memory utilisation of the servers."""
    title = "Host resource utilisation"
    if not observed.hosts:
        return without("Figure 8", title, observed, Needs.HOSTS)
    curves: dict[str, Sequence[float]] = {
        "CPU": [host.cpu_ratio for host in observed.hosts],
        "memory": [host.memory_ratio for host in observed.hosts],
    }
    entries = []
    for row, values in curves.items():
        entries.append(Entry(row, "mean", sum(values) / len(values), Unit.RATIO))
        entries += [Entry(row, f"p{percent}", quantile(values, percent / 100), Unit.RATIO) for percent in (50, 90)]
    return Finding("Figure 8", title, tuple(entries), (Panel("", curves, "utilisation"),))
