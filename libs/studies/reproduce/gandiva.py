"""The runs that Gandiva's section 6 needs; what they are compared with is in `claims/gandiva.toml`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from libs.studies.experiments.runs import Result, RunSpec
from libs.studies.generators.gandiva import UTILISATIONS, GandivaWorkload, mean_gpu_hours
from libs.studies.generators.sweep import SweepWorkload
from libs.studies.generators.turns import Figure9Workload
from libs.studies.report import completion
from libs.studies.report.drawing import Drawing
from libs.studies.reproduce.delays import RESUME_S, START_S, SUSPEND_S
from libs.studies.reproduce.metrics import MINUTE_S
from libs.studies.reproduce.stated import Arm, table_of
from libs.studies.reproduce.study import Chapter, Point, Study, study_of

TURNS = "gandiva"
HOPELESS = 0.30
"""Accuracy below which the paper's searches give a trial up, in the baseline as well."""
MIXED_JOBS, MIXED_HOURS = 1000, 2.0
"""Section 6.3: jobs, and the time over which they arrive."""
TRACE_JOBS, TRACE_HOURS, TRACE_GPUS = 8800, 216.0, 100
TRACE_LOAD = 1.0
"""GPU time that the trace asks for, over what its GPUs have while it arrives, where a row does not say another. The
paper does not print it; its baseline ends seven hours after the nine days, and Gandiva a day before their end: so its
jobs arrive in less time (the middle of its trace is at 5,607 minutes), and both schedulers are overloaded."""
TABLE_4 = {0.7: 15, 0.8: 58, 0.9: 87}
"""{target accuracy: place of the first trial that reaches it}"""
TABLE_4_TRIAL_S, TABLE_4_GOOD_AT = 850 * MINUTE_S, 0.3
"""By table 4's minutes a trial takes 740 to 920, and the good ones reach the target after 130 to 330 of these."""
SHARED_TRIALS, SHARED_PLACE, SHARED_GOOD_AT, SHARED_TRIAL_S = 40, 36, 0.2, 130 * MINUTE_S
SHARED_BEGIN_S = 10 * MINUTE_S
KEPT_WHEN_SPREAD = 0.5
"""Part of its speed that the VGG-like trial keeps on several servers; figure 1 has 60 % for two sockets."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large the study is."""

    seeds: tuple[int, ...] = (0,)
    full: bool = False
    mixed_gpus: int = 180
    trace_gpus: int = 24
    searches: int = 1
    """In the shared cluster; each with 8 GPUs of its own."""
    shared_gpus: int = 32
    shrink: float = 1.0
    """Numbers of jobs and trials are so many times smaller, for tests."""


FULL = Size(seeds=(0, 1, 2), full=True, trace_gpus=TRACE_GPUS, searches=2, shared_gpus=100)


class GandivaPlan:
    """Makes the runs. See `study.Plan`."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.full = size.full

    def compute(self, name: str) -> dict[str, float]:
        """See `study.Plan`: every claim of this paper needs runs."""
        raise ValueError(f"nothing is called {name!r}")

    def points(self, arm: Arm, seeds: int | None) -> list[Point]:
        """See `study.Plan`."""
        places = arm.full_at if self.full and arm.full_at is not None else arm.at
        chosen = self.size.seeds if self.full else self.size.seeds[:seeds]
        return [Point(at, replace(self._run(arm, at), seed=seed)) for at in places or [0.0] for seed in chosen]

    def _run(self, arm: Arm, at: float) -> RunSpec:
        delays = {"start_delay_s": START_S, "suspend_delay_s": SUSPEND_S, "resume_delay_s": RESUME_S}
        chosen: dict[str, Any] = {**delays, **self._jobs(arm, at), **arm.options}
        return RunSpec(policy=arm.policy, **chosen)

    def _jobs(self, arm: Arm, at: float) -> dict[str, Any]:
        """The fields of a run that say what arrives, on which cluster."""
        turns, gpus = arm.policy == TURNS, 16 if arm.workload.endswith("-16") else 4
        match arm.workload.removesuffix(f"-{gpus}"):
            case "mixed" | "mixed-by-turns":
                packing = {"utilisations": UTILISATIONS} if turns and arm.workload == "mixed" else {}
                jobs = self._fewer(MIXED_JOBS)
                return {
                    "workload": GandivaWorkload(jobs=jobs, jobs_per_hour=jobs / MIXED_HOURS),
                    "cluster": halves(self.size.mixed_gpus),
                    "keep_intervals": True,
                    **packing,
                }
            case "trace" | "trace-even" | "trace-same":
                workload = self._trace(arm.workload, at or TRACE_LOAD)
                return {"workload": workload, "cluster": halves(self.size.trace_gpus)}
            case "figure9":
                return {"workload": Figure9Workload(), "cluster": "p100=4"}
            case "search":
                return {"workload": self._search(gpus, turns, place=self._fewer(at)), "cluster": f"p40={gpus}"}
            case "search-unjudged":
                found = replace(self._search(gpus, turns, place=self._fewer(at)), give_up_below=HOPELESS)
                return {"workload": found, "cluster": f"p40={gpus}"}
            case "explore":
                return {"workload": self._search(gpus, turns, place=0), "cluster": f"p40={gpus}"}
            case "target":
                return {"workload": self._to_target(at, turns), "cluster": "p40=16"}
            case "shared":
                return {"workload": self._shared(turns), "cluster": halves(self.size.shared_gpus)}
        raise ValueError(f"no workload is called {arm.workload!r}")

    def _fewer(self, number: float) -> int:
        return max(1, round(number / self.size.shrink))

    def _trace(self, kind: str, load: float) -> GandivaWorkload:
        """As many jobs a GPU as the paper's, with run times that make up the load."""
        jobs = self._fewer(TRACE_JOBS * self.size.trace_gpus / TRACE_GPUS)
        faster = _gpu_hours(kind) * TRACE_JOBS / (load * TRACE_GPUS * TRACE_HOURS)
        per_hour = jobs * self.size.shrink / TRACE_HOURS
        return GandivaWorkload(kind=kind, jobs=jobs, jobs_per_hour=round(per_hour, 4), faster=round(faster, 4))

    def _search(self, gpus: int, turns: bool, place: int) -> SweepWorkload:
        """By turns: twice as many trials at once as GPUs, half of the GPUs for the best; else one after the other."""
        plain = SweepWorkload(trials=self._fewer(374), place=place)
        if turns:
            return replace(plain, at_once=2 * gpus, favourites=gpus // 2)
        return replace(plain, give_up_below=HOPELESS)

    def _to_target(self, target: float, turns: bool) -> SweepWorkload:
        """Table 4's search for a target on 16 GPUs."""
        plain = self._search(16, turns, place=TABLE_4[target])
        long = replace(plain, trial_s=TABLE_4_TRIAL_S, good_at=TABLE_4_GOOD_AT, floor=0.3)
        return replace(long, trials=100, target=target)

    def _shared(self, turns: bool) -> SweepWorkload:
        """Searches on what others leave: every n-th of as many one-GPU jobs as there are GPUs ends as they begin."""
        gpus, searches = self.size.shared_gpus, self.size.searches
        plain = SweepWorkload(
            trials=SHARED_TRIALS,
            place=SHARED_PLACE,
            target=0.995,
            floor=0.35,
            good_at=SHARED_GOOD_AT,
            trial_s=SHARED_TRIAL_S,
            gpus=2,
            spread=KEPT_WHEN_SPREAD,
            searches=searches,
            begin_s=SHARED_BEGIN_S,
            others=gpus,
            gaps=gpus // (8 * searches),
        )
        if turns:
            return replace(plain, at_once=8, favourites=2)
        return replace(plain, give_up_below=HOPELESS)


def halves(gpus: int) -> str:
    """A cluster of about equal parts of P100 and P40, in servers of four."""
    first = 4 * round(gpus / 8)
    return f"p100={first},p40={gpus - first}"


@cache
def _gpu_hours(kind: str) -> float:
    return mean_gpu_hours(kind)


def study(size: Size | None = None) -> Study:
    """All claims and pictures, at a size."""
    return study_of("gandiva", table_of("gandiva"), GandivaPlan(size or Size()), CHAPTERS)


def _early(results: Sequence[Result]) -> list[Drawing]:
    title = "Time from submission to the 100th mini-batch"
    return [completion.distribution(results, "early-feedback", title, _minutes_to_100, "minutes")]


def _minutes_to_100(result: Result) -> list[float]:
    done = [row for row in result.measured if row["steps_100_s"] is not None]
    return [(row["steps_100_s"] - row["submit_s"]) / MINUTE_S for row in done]


def _trace_jcts(results: Sequence[Result]) -> list[Drawing]:
    return [completion.distribution(results, "trace-jct", "Distribution of completion times")]


CHAPTERS = (
    Chapter(
        "Early feedback",
        "Section 6.3: 1,000 jobs of the eight models of table 1 arrive over two hours for 180 GPUs.",
        ("early-feedback", "early-turns"),
        _early,
    ),
    Chapter(
        "Figure 17: the trace",
        "Section 6.4: jobs of the ten models of table 2, with run times distributed as in the public Philly trace.",
        ("trace-jct", "migration-alone"),
        _trace_jcts,
    ),
)
