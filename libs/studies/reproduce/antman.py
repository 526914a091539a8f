"""The runs that AntMan's sections 2 and 5 need; what they are compared with is in `claims/antman.toml`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from libs.sim.sharing.beside import Beside
from libs.studies.experiments.runs import RunSpec
from libs.studies.generators.antman import GPU_TYPE, AntmanWorkload
from libs.studies.reproduce.antman_computed import COMPUTED
from libs.studies.reproduce.antman_pictures import CHAPTERS
from libs.studies.reproduce.stated import Arm, table_of
from libs.studies.reproduce.study import Point, Study, study_of

TRACE_GPUS, GPUS_PER_SERVER = 64, 8
"""Section 5.2's cluster."""
WEEK_LOAD, WEEK_GUARANTEED = 1.2, 0.6
"""Not printed: as much as leaves a queue without guests, and more guaranteed jobs than opportunistic ones."""
QUEUE_LOAD = 0.8
MIDDLE_LOAD = 1.3
"""The load of section 5.2 is not printed; claims are judged at this one, where they name none."""
ARMS: dict[str, dict[str, Any]] = {
    "antman": {},
    "capacity": {"guests": "none"},
    "preempting": {"beside": Beside.LEAVE, "parks": False, "max_guests": 1.0},
    "packing": {"beside": Beside.LEAVE, "max_guests": 3.0, "guest_utilisation": 10.0},
    "umem": {"beside": Beside.UMEM},
    "pack": {"beside": Beside.PACK},
}
"""{way of sharing: options of a run}. `capacity`: queues of tenants, idle GPUs are lent (YARN's capacity scheduler);
`preempting`: the same, but guaranteed jobs take what was lent, and those that lose it start anew; `packing`: Gandiva's,
any job goes to the least used GPU with enough memory, as profiled before, and nothing holds it back there."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large the study is."""

    seeds: tuple[int, ...] = (0, 1)
    full: bool = False
    reduced: bool = False
    """Of the loads only the middle one."""
    trace_jobs: int = 1000
    week_jobs: int = 800
    queue_jobs: int = 1000
    queue_gpus: int = 30
    queue_trace: str | None = None
    """A `traces/1` file with the jobs of table 4; None: drawn."""


REDUCED = Size(seeds=(0,), reduced=True, trace_jobs=600, week_jobs=300, queue_jobs=500)
FULL = Size(seeds=(0, 1, 2), full=True, trace_jobs=4000, week_jobs=6000, queue_jobs=6000)


class AntmanPlan:
    """Makes the runs. See `study.Plan`."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.full = size.full

    def compute(self, name: str) -> dict[str, float]:
        """See `study.Plan`."""
        return COMPUTED[name]()

    def points(self, arm: Arm, seeds: int | None) -> list[Point]:
        """See `study.Plan`."""
        places = arm.full_at if self.full and arm.full_at is not None else arm.at
        if self.size.reduced and MIDDLE_LOAD in places:
            places = [MIDDLE_LOAD]
        chosen = self.size.seeds if self.full else self.size.seeds[:seeds]
        return [Point(at, replace(self._run(arm, at), seed=seed)) for at in places or [0.0] for seed in chosen]

    def _run(self, arm: Arm, at: float) -> RunSpec:
        kind, _, way = arm.workload.partition("/")
        chosen: dict[str, Any] = {
            "gpus_per_server": GPUS_PER_SERVER,
            "restartable": False,
            **self._jobs(kind, at),
            **ARMS[way],
            **arm.options,
        }
        if way == "packing":
            chosen["workload"] = replace(chosen["workload"], profiled=True)
        return RunSpec(policy=arm.policy, **chosen)

    def _jobs(self, kind: str, at: float) -> dict[str, Any]:
        """The fields of a run that say what arrives, on which cluster."""
        size = self.size
        match kind:
            case "table-2" | "figure-12":
                return {"workload": AntmanWorkload(kind=kind, gpus=1), "cluster": f"{GPU_TYPE}=1"}
            case "trace":
                found = AntmanWorkload(jobs=size.trace_jobs, gpus=TRACE_GPUS, load=at)
                return {"workload": found, "cluster": f"{GPU_TYPE}={TRACE_GPUS}"}
            case "week":
                found = AntmanWorkload(
                    kind=kind,
                    jobs=size.week_jobs,
                    gpus=TRACE_GPUS,
                    load=WEEK_LOAD,
                    guaranteed_share=WEEK_GUARANTEED,
                )
                return {"workload": found, "cluster": f"{GPU_TYPE}={TRACE_GPUS}", "keep_intervals": True}
            case "queue":
                gpus = size.queue_gpus
                found = AntmanWorkload(
                    kind=kind, jobs=size.queue_jobs, gpus=gpus, load=QUEUE_LOAD, trace=size.queue_trace
                )
                return {"workload": found, "cluster": f"{GPU_TYPE}={gpus}"}
        raise ValueError(f"no workload is called {kind!r}")


def study(size: Size | None = None) -> Study:
    """All claims and pictures, at a size."""
    return study_of("antman", table_of("antman"), AntmanPlan(size or Size()), CHAPTERS)
