"""Average job completion time of policies at several loads, beside the bound without contention.

    python -m tests.bench.gavel_jct [--data ../shared/data/throughputs.json] [--seeds 0 1 2]

36 GPUs each of V100, P100 and K80, rounds of 360 s, jobs of the Gavel paper's generator (section 7.1); jobs 1000 to
1499 are measured, and jobs keep arriving until the last of them has ended. Seed 0 gives the very jobs for which the
authors' simulator gives the hours in the column `authors`.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from libs.cli.simulation import document_of, simulation_of
from libs.sim.choice import Choice
from libs.sim.throughputs import read_throughputs
from libs.studies.generators.gavel import GavelWorkload
from tests.bench.report import Report

DATA = Path("../shared/data/throughputs.json")
CLUSTER = "v100=36,p100=36,k80=36"
MEASURE = (1000, 1500)
JOBS = 3000
"""More than arrive before the last measured job has ended."""


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    kind: str
    jobs_per_hour: float
    policy: str
    agnostic: bool = False
    checkpoint_s: float = 0.0
    space_sharing: bool = False
    authors: float | None = None
    """Average JCT in hours that the authors' simulator gives for seed 0."""

    @property
    def name(self) -> str:
        """For people."""
        kind = "agnostic" if self.agnostic else "aware"
        packed = ", space sharing" if self.space_sharing else ""
        cost = f", {self.checkpoint_s:g} s checkpoints" if self.checkpoint_s else ""
        return f"{self.kind}: {kind} {self.policy}{packed}{cost}"


LAS, SINGLE, MULTIPLE = "max_min_fairness", "continuous-single", "continuous-multiple"
CASES = (
    *(Case(SINGLE, load, LAS, True, authors=jct) for load, jct in ((4.0, 20.9), (5.0, 23.1), (5.5, None))),
    *(Case(SINGLE, load, LAS, authors=jct) for load, jct in ((4.0, 14.65), (5.0, 16.3), (5.5, 18.0))),
    *(Case(SINGLE, load, "fifo", authors=jct) for load, jct in ((4.0, 14.3), (5.0, 16.4), (5.5, 19.0))),
    *(Case(SINGLE, load, "allox", authors=jct) for load, jct in ((4.0, 15.2), (5.0, 19.8), (5.5, 21.3))),
    *(Case(MULTIPLE, load, LAS, True, authors=jct) for load, jct in ((2.0, 25.8), (2.5, 26.9))),
    *(Case(MULTIPLE, load, LAS, authors=jct) for load, jct in ((2.0, 17.7), (2.5, 20.9))),
    *(Case(SINGLE, load, LAS, checkpoint_s=5.0) for load in (4.0, 5.0, 5.5)),
    *(Case(SINGLE, load, LAS, space_sharing=True) for load in (4.0, 5.0, 5.5)),
)


def run(case: Case, seed: int, data: Path) -> tuple[float, float, float, int]:
    """(Average JCT in hours, bound in hours, seconds that it took, events)."""
    rates = read_throughputs(data)
    workload = GavelWorkload(kind=case.kind, jobs=JOBS, jobs_per_hour=case.jobs_per_hour)
    jobs = workload.draw(seed, rates)
    choice = Choice(
        policy=case.policy,
        cluster=CLUSTER,
        seed=seed,
        heterogeneity_agnostic=case.agnostic,
        space_sharing=case.space_sharing,
        checkpoint_overhead_s=case.checkpoint_s,
        measure=MEASURE,
    )
    simulation = simulation_of(jobs, rates, choice)
    began = time.perf_counter()
    simulation.run()
    took_s = time.perf_counter() - began
    summary = document_of(simulation, choice, took_s)["summary"]
    alone = [
        (job.total_steps or 0.0) / max(rates.rate(job.config, t, True) or 0.0 for t in rates.gpu_types)
        for job in jobs[slice(*MEASURE)]
    ]
    return summary["avg_jct_s"] / 3600, mean(alone) / 3600, took_s, summary["events"]


def main() -> None:
    """Run all cases and write the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="cases with this in their name")
    options = parser.parse_args()
    if not options.data.exists():
        raise SystemExit(f"{options.data}: no such file; nothing is measured without the table")
    report = Report("gavel_jct", "Average job completion time, ratio to the bound without contention")
    with ProcessPoolExecutor(options.workers) as pool:
        waiting = {
            case: [pool.submit(run, case, seed, options.data) for seed in options.seeds]
            for case in CASES
            if options.only in case.name
        }
        for case, futures in waiting.items():
            found = [future.result() for future in futures]
            report.row(
                case.name,
                jobs_per_hour=case.jobs_per_hour,
                jct_hours=[round(jct, 2) for jct, *_ in found],
                bound_hours=[round(bound, 2) for _, bound, *_ in found],
                ratios=[round(jct / bound, 3) for jct, bound, *_ in found],
                authors=case.authors or "",
                seconds=round(mean(took for *_, took, _ in found), 1),
                events=round(mean(events for *_, events in found)),
            )
    report.write()


if __name__ == "__main__":
    main()
