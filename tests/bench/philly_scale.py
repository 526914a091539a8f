"""Philly's trace on a cluster where most jobs wait, against one where few do: the same jobs cost about the same.

    python -m tests.bench.philly_scale [--data ../shared/data]

Two months of Philly (55,803 jobs) under `backfill`, simulated through all services, on 2,000 GPUs and on 512. Figures
are CPU seconds of one process; the limit is a ratio of the two, so that it holds on any machine.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from libs.cli.simulation import simulation_of
from libs.sim.choice import Choice
from libs.sim.throughputs import NO_THROUGHPUTS
from libs.sim.traces import read_trace
from tests.bench.report import Report

DATA = Path("../shared/data")
LARGE, SMALL = 2_000, 512
"""GPUs."""
AT_MOST = 2.5


def run_s(data: Path, gpus: int) -> float:
    """CPU seconds of the simulation alone."""
    jobs = read_trace(data / "traces" / "philly-early.csv")
    simulation = simulation_of(jobs, NO_THROUGHPUTS, Choice(policy="backfill", cluster=f"v100={gpus}"))
    began_s = time.process_time()
    simulation.run()
    return time.process_time() - began_s


def main() -> int:
    """Run both and write the results; 1 when the limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    options = parser.parse_args()
    if not options.data.exists():
        raise SystemExit(f"{options.data}: no such folder; nothing is measured without the data")
    report = Report("philly_scale", "Philly's trace on few GPUs and on many")
    large_s, small_s = run_s(options.data, LARGE), run_s(options.data, SMALL)
    report.row(f"{LARGE:,} GPUs", cpu_s=round(large_s, 1))
    report.row(f"{SMALL:,} GPUs", cpu_s=round(small_s, 1))
    ratio = small_s / large_s
    report.row(
        f"{SMALL:,} GPUs against {LARGE:,}",
        ratio=round(ratio, 1),
        wanted=f"at most {AT_MOST:g}",
        within_limit=ratio <= AT_MOST,
    )
    report.write()
    return 0 if report.all_within_limits() else 1


if __name__ == "__main__":
    sys.exit(main())
