"""The pictures that go with Gavel's claims, in the order of the paper's figures."""

from __future__ import annotations

from collections.abc import Sequence

from libs.studies.experiments.runs import Result
from libs.studies.report import completion, timelines
from libs.studies.report.drawing import Drawing
from libs.studies.report.intervals import from_rows
from libs.studies.reproduce import metrics
from libs.studies.reproduce.gavel_plan import AGNOSTIC, AWARE, GANDIVA, LAS, MULTIPLE, SHARING, SINGLE, Plan
from libs.studies.reproduce.study import Chapter


def chapters(plan: Plan) -> list[Chapter]:
    def curves(kind: str, figure: str) -> Chapter:
        choices = [(LAS, AGNOSTIC), (LAS, AWARE), (LAS, SHARING), (GANDIVA, SHARING)]
        choices += [("allox", AWARE)] if kind == SINGLE else []
        runs = [spec for policy, options in choices for spec in plan.at_all_loads(kind, policy, options)]
        text = f"Variants of least attained service as the load grows, {kind} workload."
        return Chapter(f"Figure {figure}: LAS", text, runs, lambda results: _load_drawings(results, f"fig{figure}"))

    ftf = [spec for o in (AGNOSTIC, AWARE) for spec in plan.at_all_loads(MULTIPLE, "finish_time_fairness", o)]
    fifo = [spec for o in (AGNOSTIC, AWARE, SHARING) for spec in plan.at_all_loads(SINGLE, "fifo", o)]
    multi_level = [plan.multi_level()]
    rounds = plan.rounds(plan.size.round_minutes)
    return [
        curves(SINGLE, "8"),
        curves(MULTIPLE, "9"),
        Chapter(
            "Figure 10: finish-time fairness",
            "The policy with and without knowledge of heterogeneity, continuous-multiple workload.",
            ftf,
            lambda results: [*_load_drawings(results, "fig10"), _rho(results)],
        ),
        Chapter(
            "Figure 11: multi-level fairness",
            "Three entities of weights 1, 2 and 3 on 3 V100, 3 P100 and 3 K80.",
            multi_level,
            _over_time,
        ),
        Chapter(
            "Figure 13: the mechanism",
            "The length of rounds, at high load.",
            rounds,
            lambda results: [
                completion.against(
                    results,
                    "fig13-rounds",
                    "Average completion time against the length of rounds",
                    place=completion.round_minutes,
                    place_unit="length of a round (minutes)",
                )
            ],
        ),
        Chapter(
            "FIFO",
            "First in, first out as the load grows, continuous-single workload.",
            fifo,
            lambda results: _load_drawings(results, "fifo"),
        ),
    ]


def _load_drawings(results: Sequence[Result], name: str) -> list[Drawing]:
    high = max((result.spec.jobs_per_hour or 0.0 for result in results), default=0.0)
    at_high = [result for result in results if result.spec.jobs_per_hour == high]
    return [
        completion.against(results, f"{name}-jct"),
        completion.distribution(
            at_high, f"{name}-cdf", f"Distribution of completion times at {high:.3g} jobs per hour"
        ),
    ]


def _rho(results: Sequence[Result]) -> Drawing:
    return completion.distribution(
        results,
        "fig10-rho",
        "Distribution of finish-time fairness",
        metrics.finish_time_fairness,
        "time over the time on 1/n of the cluster",
    )


def _over_time(results: Sequence[Result]) -> list[Drawing]:
    drawings = []
    for result in results:
        intervals = from_rows(result.document.get("intervals", ()))
        if intervals:
            drawings += [
                timelines.shares(intervals, result.spec.gpus, result.spec.tenant_weights, "fig11-shares"),
                timelines.utilisation(intervals, result.spec.gpus, "fig11-utilisation"),
                timelines.gantt(intervals, result.spec.round_s, name="fig11-rounds"),
            ]
    return drawings
