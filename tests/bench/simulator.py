"""The simulator and the audit: a thousand-job trace through all services, twice, and larger ones.

    python -m tests.bench.simulator [--jobs 1000 5000]

Each run is made twice; the two logs must be the same to the byte. Results go to results/simulator.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import time
from pathlib import Path
from typing import Any

from libs.contracts import wire
from libs.inspect.conservation import conservation
from libs.inspect.verify import verify
from libs.sim.clusters import parse_cluster
from libs.sim.options import FailureModel, Options
from libs.sim.simulation import Simulation
from libs.sim.workloads import generate, workload_of
from libs.testing.builders import log_of
from services.roster import SERVICES

RESULTS = Path(__file__).parent / "results" / "simulator.json"
CLUSTER = "v100=36,p100=36,k80=36"
JOBS_PER_HOUR = 420.0
"""So many that the queue is hundreds of jobs long for hours."""


def simulate(jobs: int) -> tuple[Simulation, float]:
    """A run with failing attempts and crashing nodes, and the seconds that it took."""
    workload = workload_of(generate(jobs, seed=1, jobs_per_hour=JOBS_PER_HOUR))
    failures = FailureModel(attempt_failure_ratio=0.05, node_mtbf_s=200_000.0)
    started = time.perf_counter()
    simulation = Simulation(SERVICES, parse_cluster(CLUSTER), workload, options=Options(failures=failures))
    simulation.run()
    return simulation, time.perf_counter() - started


def digest(simulation: Simulation) -> str:
    """A hash over all bytes of the log."""
    seen = hashlib.sha256()
    for envelope in simulation.log.control + simulation.log.orders:
        headers, data = wire.encode(envelope)
        seen.update(repr(headers).encode() + data)
    return seen.hexdigest()


def measure(jobs: int) -> dict[str, Any]:
    """One row of the results."""
    (first, first_s), (second, second_s) = simulate(jobs), simulate(jobs)
    started = time.perf_counter()
    audit = verify(log_of(first), SERVICES)
    verify_s = time.perf_counter() - started
    return {
        "jobs": jobs,
        "events": first.log.end,
        "run_s": [round(first_s, 3), round(second_s, 3)],
        "events_per_s": round(first.log.end / min(first_s, second_s)),
        "identical": digest(first) == digest(second),
        "verify_s": round(verify_s, 3),
        "differences": audit.differences,
        "violations": len(conservation(first.records()).violations),
        "peak_memory_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def main() -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1000, 5000])
    rows = [measure(jobs) for jobs in parser.parse_args().jobs]
    for row in rows:
        print(json.dumps(row))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"cluster": CLUSTER, "jobs_per_hour": JOBS_PER_HOUR, "runs": rows}, indent=2) + "\n")
    if not all(row["identical"] and not row["differences"] and not row["violations"] for row in rows):
        raise SystemExit("two runs differ, or the audit found something")


if __name__ == "__main__":
    main()
