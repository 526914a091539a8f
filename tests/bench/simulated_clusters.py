"""Whole clusters simulated: the workload of the Gavel paper in rounds, and Philly's trace through the queue.

    python -m tests.bench.simulated_clusters [--data ../shared/data]

Events are counted on the control log. Each run is a process of its own, so that its memory is its own; of several runs
the fastest one is shown, and how long all of them took. What the machine gives at that moment is measured in the same
process, before and after: `empty_loops` is how many times the run took as long as 20 million turns of an empty loop.
The authors' simulator ends when the jobs of its measurement have ended; so does the first row. It matters which Python
runs this: one that is linked statically is faster than one that was built with `--enable-shared`, by a tenth or more.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from libs.cli.simulation import document_of, simulation_of
from libs.sim.choice import Choice
from libs.sim.throughputs import NO_THROUGHPUTS, read_throughputs
from libs.sim.traces import read_trace
from libs.studies.generators.gavel import GavelWorkload
from tests.bench.report import Report

DATA = Path("../shared/data")
GAVEL = Choice(policy="max_min_fairness", cluster="v100=36,p100=36,k80=36")
MEASURED = replace(GAVEL, measure=(1000, 1500))
PHILLY = Choice(policy="backfill", cluster="v100=2000")
RUNS = 10
"""Others on the machine slow some of the runs down, by a half and more; nothing makes one faster."""


def gavel(choice: Choice, data: Path) -> dict[str, Any]:
    """2,000 jobs at 4 jobs an hour on 108 GPUs of three types, rounds of 360 s."""
    rates = read_throughputs(data / "throughputs.json")
    jobs = GavelWorkload(kind="continuous-single", jobs=2000, jobs_per_hour=4.0).draw(0, rates)
    return _measured(simulation_of(jobs, rates, choice), choice)


def philly(data: Path) -> dict[str, Any]:
    """Two months of Philly: 55,803 jobs on 2,000 GPUs."""
    jobs = read_trace(data / "traces" / "philly-early.csv")
    return _measured(simulation_of(jobs, NO_THROUGHPUTS, PHILLY), PHILLY)


def _empty_loop_s() -> float:
    began = time.perf_counter()
    for _ in range(20_000_000):
        pass
    return time.perf_counter() - began


def _measured(simulation: Any, choice: Choice) -> dict[str, Any]:
    loop_s = _empty_loop_s()
    began = time.perf_counter()
    simulation.run()
    took_s = time.perf_counter() - began
    loop_s = (loop_s + _empty_loop_s()) / 2
    summary = document_of(simulation, choice, took_s)["summary"]
    return {
        "jobs": sum(job.finish_s is not None for job in simulation.outcomes.values()),
        "simulated_hours": round(summary["simulated_s"] / 3600),
        "seconds": round(took_s, 2),
        "empty_loops": round(took_s / loop_s, 1),
        "events": summary["events"],
        "events_per_s": round(summary["events"] / took_s),
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main() -> None:
    """Run both and write the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=DATA)
    options = parser.parse_args()
    if not options.data.exists():
        raise SystemExit(f"{options.data}: no such folder; nothing is measured without the data")
    report = Report("simulated_clusters", "Whole clusters simulated through all services")
    context = multiprocessing.get_context("spawn")
    for name, run, times, limit_s in (
        (
            "Gavel's continuous-single, max-min fairness, until jobs 1000-1499 have ended",
            partial(gavel, MEASURED),
            RUNS,
            5,
        ),
        ("the same, until all jobs have ended", partial(gavel, GAVEL), RUNS, 5),
        ("Philly, backfill", philly, 1, 180),
    ):
        runs = []
        for _ in range(times):
            with context.Pool(1) as pool:
                runs.append(pool.apply(run, (options.data,)))
        fastest = min(runs, key=itemgetter("seconds"))
        report.row(name, **fastest, all_seconds=" ".join(str(each["seconds"]) for each in runs), limit_s=limit_s)
    report.write()


if __name__ == "__main__":
    main()
