"""Whole clusters simulated: the workload of the Gavel paper in rounds, and Philly's trace through the queue.

    python -m tests.bench.simulated_clusters [--data ../shared/data] [--only speed|shared]

The second part plays Philly's trace on servers with 8 GPUs: under `backfill`, and under `philly` with the trace's
virtual clusters; their guarantees are scaled by the same factor as the servers. Its figures are CPU seconds of one
process each, and its limits ratios of them, so that they hold on any machine.

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
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from libs.cli.simulation import document_of, simulation_of
from libs.sim.choice import Choice
from libs.sim.throughputs import NO_THROUGHPUTS, read_throughputs
from libs.sim.traces import read_trace
from libs.sim.workloads import Planned
from libs.studies.generators.gavel import GavelWorkload
from libs.studies.generators.philly import GPU_TYPE, GPUS_PER_SERVER, VIRTUAL_CLUSTERS, virtual_clusters
from tests.bench.report import Report

DATA = Path("../shared/data")
GAVEL = Choice(policy="max_min_fairness", cluster="v100=36,p100=36,k80=36")
MEASURED = replace(GAVEL, measure=(1000, 1500))
PHILLY = Choice(policy="backfill", cluster="v100=2000")
RUNS = 10
"""Others on the machine slow some of the runs down, by a half and more; nothing makes one faster."""
LARGE_GPUS, AS_BACKFILL_AT_MOST = 2000, 2.0
"""On so many GPUs few jobs wait: `philly` against `backfill` there."""
SMALLER_AT_MOST = {768: 2.0, 512: 4.0}
"""{GPUs, on which many or most jobs wait: `philly` there against itself on `LARGE_GPUS`}."""
MEMORY_MIB_AT_MOST = 1024


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


def shared(policy: str, gpus: int, data: Path) -> dict[str, Any]:
    """Two months of Philly on servers with 8 GPUs; under `philly` with its virtual clusters, scaled as the servers."""
    jobs = read_trace(data / "traces" / "philly-early.csv")
    choice = Choice(policy=policy, cluster=f"{GPU_TYPE}={gpus}", gpus_per_server=GPUS_PER_SERVER)
    factor = gpus / GPUS_PER_SERVER / sum(VIRTUAL_CLUSTERS.values())
    tenants = [Planned(0.0, tenant) for tenant in virtual_clusters(factor)] if policy == "philly" else []
    simulation = simulation_of(jobs, NO_THROUGHPUTS, choice, requests=tenants)
    began_s = time.process_time()
    simulation.run()
    return {
        "jobs": sum(job.finish_s is not None for job in simulation.outcomes.values()),
        "cpu_s": round(time.process_time() - began_s, 1),
        "events": simulation.lives.events,
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _alone(run: Callable[[Path], dict[str, Any]], data: Path) -> dict[str, Any]:
    """What is measured in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(run, (data,))


def _side_by_side(runs: Sequence[tuple[str, int]], data: Path) -> Iterator[dict[str, Any]]:
    """The same of several (policy, GPUs); CPU time is that of each alone, however many cores there are."""
    with multiprocessing.get_context("spawn").Pool(len(runs), maxtasksperchild=1) as pool:
        for run in [pool.apply_async(shared, (policy, gpus, data)) for policy, gpus in runs]:
            yield run.get()


def measure_speed(data: Path) -> Report:
    """Seconds and events per second, the fastest of several runs."""
    report = Report("simulated_clusters", "Whole clusters simulated through all services")
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
        runs = [_alone(run, data) for _ in range(times)]
        fastest = min(runs, key=itemgetter("seconds"))
        report.row(name, **fastest, all_seconds=" ".join(str(each["seconds"]) for each in runs), limit_s=limit_s)
    report.write()
    return report


def measure_shared(data: Path) -> Report:
    """CPU seconds with and without virtual clusters, and their ratios."""
    report = Report("shared_clusters", "Philly's trace with virtual clusters", module="simulated_clusters")
    runs = [("backfill", LARGE_GPUS), *(("philly", gpus) for gpus in (LARGE_GPUS, *SMALLER_AT_MOST))]
    cpu_s: dict[tuple[str, int], float] = {}
    for (policy, gpus), found in zip(runs, _side_by_side(runs, data), strict=True):
        cpu_s[policy, gpus] = found["cpu_s"]
        fits = found["memory_mib"] < MEMORY_MIB_AT_MOST
        report.row(f"{policy}, {gpus:,} GPUs", **found, wanted=f"under {MEMORY_MIB_AT_MOST:,} MiB", within_limit=fits)
    large = "philly", LARGE_GPUS
    for at, base, most in (
        (large, ("backfill", LARGE_GPUS), AS_BACKFILL_AT_MOST),
        *((("philly", gpus), large, most) for gpus, most in SMALLER_AT_MOST.items()),
    ):
        ratio = cpu_s[at] / cpu_s[base]
        names = [f"{policy} on {gpus:,} GPUs" for policy, gpus in (at, base)]
        wanted = f"at most {most:g}"
        report.row(" against ".join(names), ratio=round(ratio, 2), wanted=wanted, within_limit=ratio <= most)
    report.write()
    return report


PARTS = {"speed": measure_speed, "shared": measure_shared}


def main() -> int:
    """Measure and write the results; 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--only", choices=PARTS, help="one of the two parts")
    options = parser.parse_args()
    if not options.data.exists():
        raise SystemExit(f"{options.data}: no such folder; nothing is measured without the data")
    reports = [measure(options.data) for name, measure in PARTS.items() if options.only in (None, name)]
    return 0 if all(report.all_within_limits() for report in reports) else 1


if __name__ == "__main__":
    sys.exit(main())
