"""The report of an experiment: whatever pictures its results allow."""

from __future__ import annotations

from collections.abc import Sequence

from libs.kernel.words import plural
from libs.studies.experiments.runs import Result
from libs.studies.report import completion, timelines
from libs.studies.report.drawing import Drawing
from libs.studies.report.intervals import from_rows
from libs.studies.report.page import Report, Section

MOST_TIMELINES = 4


def facts(results: Sequence[Result]) -> list[tuple[str, str]]:
    """What was done, in numbers."""
    jobs = sum(result.summary["jobs"] for result in results)
    wall_s = sum(result.summary.get("wall_s") or 0.0 for result in results)
    simulated_s = sum(result.summary.get("simulated_s") or 0.0 for result in results)
    variants = {result.spec.label for result in results}
    seeds = {result.spec.seed for result in results}
    return [
        (f"{len(results):,}", plural(len(results), "simulation")),
        (f"{jobs:,}", plural(jobs, "measured job")),
        (f"{len(variants):,}", plural(len(variants), "policy or variant", "policies and variants")),
        (f"{len(seeds):,}", plural(len(seeds), "seed")),
        (f"{simulated_s / 86400 / 365.25:,.1f} years", "simulated"),
        (_wall(wall_s), "of computing"),
    ]


def overview(name: str, results: Sequence[Result], made_by: str = "") -> Report:
    """Completion times against load and against the length of rounds, distributions, and runs over time."""
    sections = [section for section in (_loads(results), _rounds(results), _over_time(results)) if section.drawings]
    clusters = ", ".join(dict.fromkeys(result.spec.cluster for result in results))
    return Report(name, f"Simulated on {clusters}", facts(results), sections=sections, made_by=made_by)


def _loads(results: Sequence[Result]) -> Section:
    loads = sorted({load for result in results if (load := result.spec.jobs_per_hour) is not None})
    usual = _most_usual_round(results)
    chosen = [result for result in results if result.spec.round_s == usual]
    drawings = [completion.against(chosen)] if len(loads) > 1 else []
    at_high = [result for result in chosen if not loads or result.spec.jobs_per_hour in (None, loads[-1])]
    if any(completion.completion_times_h(result) for result in at_high):
        at = f" at {loads[-1]:.3g} jobs per hour" if loads else ""
        drawings.append(completion.distribution(at_high, title=f"Distribution of completion times{at}"))
    return Section("Completion times", "", drawings)


def _rounds(results: Sequence[Result]) -> Section:
    if len({result.spec.round_s for result in results}) < 2:
        return Section("Rounds")
    loads = sorted({load for result in results if (load := result.spec.jobs_per_hour) is not None})
    chosen = [result for result in results if not loads or result.spec.jobs_per_hour == loads[-1]]
    title = "Average completion time against the length of rounds"
    drawing = completion.against(
        chosen,
        "jct-against-rounds",
        title,
        place=completion.round_minutes,
        place_unit="length of a round (minutes)",
    )
    return Section("Rounds", "", [drawing])


def _most_usual_round(results: Sequence[Result]) -> float:
    lengths = [result.spec.round_s for result in results]
    return max(lengths, key=lengths.count)


def _over_time(results: Sequence[Result]) -> Section:
    """Of the first runs that have kept which job held what."""
    drawings: list[Drawing] = []
    kept = [result for result in results if result.document.get("intervals")]
    for result in kept[:MOST_TIMELINES]:
        intervals, spec = from_rows(result.document["intervals"]), result.spec
        drawings.append(timelines.utilisation(intervals, spec.gpus, f"utilisation-{spec.cell_id}", of=spec.label))
        if len({interval.tenant for interval in intervals}) > 1:
            weights = spec.tenant_weights or None
            drawings.append(timelines.shares(intervals, spec.gpus, weights, f"shares-{spec.cell_id}", of=spec.label))
        drawings.append(timelines.gantt(intervals, spec.round_s, name=f"rounds-{spec.cell_id}", of=spec.label))
    return Section("Over time", "", drawings)


def _wall(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
