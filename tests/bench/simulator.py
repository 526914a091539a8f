"""The simulator and the audit: a thousand-job trace through all services, twice, and larger ones; a day with guests.

    python -m tests.bench.simulator [--jobs 1000 5000]

Each run is made twice; the two logs must be the same to the byte. A day of 2,000 jobs on 64 GPUs is played without and
with guests, of whose GPUs the coordinator decides: what that costs. Results go to results/simulator.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import time
from pathlib import Path
from typing import Any

from libs.cli.simulation import simulation_of
from libs.contracts import wire
from libs.inspect.conservation import conservation
from libs.inspect.verify import verify
from libs.sim.choice import Choice
from libs.sim.clusters import parse_cluster
from libs.sim.options import FailureModel, Options
from libs.sim.simulation import Simulation
from libs.sim.workloads import generate, workload_of
from libs.studies.generators.antman import GPU_TYPE, AntmanWorkload
from libs.testing.builders import log_of
from services.roster import SERVICES

RESULTS = Path(__file__).parent / "results" / "simulator.json"
CLUSTER = "v100=36,p100=36,k80=36"
DAY_JOBS, DAY_GPUS, DAY_LONGEST_S = 2000, 64, 8 * 3600.0
"""As long as no job takes more than a working day, so many jobs are what 64 GPUs do in about a day."""
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


def a_day(guests: str) -> tuple[Simulation, float, float]:
    """The day without guests (`none`) or with them (`antman`): the run, its seconds, and seconds of CPU time."""
    workload = AntmanWorkload(kind="queue", jobs=DAY_JOBS, gpus=DAY_GPUS, load=1.0, longest_s=DAY_LONGEST_S)
    rates = workload.rates()
    choice = Choice(policy="antman", guests=guests, cluster=f"{GPU_TYPE}={DAY_GPUS}", gpus_per_server=8)
    jobs, asked = workload.draw(0, rates), workload.requests(0)
    simulation = simulation_of(jobs, rates, choice, requests=asked, models=workload.demands(), keep_log=True)
    started, cpu_started = time.perf_counter(), time.process_time()
    simulation.run()
    return simulation, time.perf_counter() - started, time.process_time() - cpu_started


def measure_guests() -> dict[str, Any]:
    """What guests add to a day. Each of the two is played twice: the second time all situations are known already."""
    runs = {guests: [a_day(guests) for _ in range(2)] for guests in ("none", "antman")}
    found: dict[str, Any] = {"jobs": DAY_JOBS, "gpus": DAY_GPUS}
    for guests, ((first, first_s, first_cpu_s), (second, second_s, second_cpu_s)) in runs.items():
        found[guests] = {
            "events": first.log.end,
            "simulated_h": round(first.now_s / 3600, 1),
            "run_s": [round(first_s, 2), round(second_s, 2)],
            "cpu_s": [round(first_cpu_s, 2), round(second_cpu_s, 2)],
            "identical": digest(first) == digest(second),
        }
    off, on = found["none"], found["antman"]
    return found | {"cpu_ratio": [round(on["cpu_s"][place] / off["cpu_s"][place], 2) for place in (0, 1)]}


def main() -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1000, 5000])
    rows = [measure(jobs) for jobs in parser.parse_args().jobs]
    for row in rows:
        print(json.dumps(row))
    RESULTS.parent.mkdir(exist_ok=True)
    guests = measure_guests()
    print(json.dumps(guests))
    found = {"cluster": CLUSTER, "jobs_per_hour": JOBS_PER_HOUR, "runs": rows, "guests": guests}
    RESULTS.write_text(json.dumps(found, indent=2) + "\n")
    if not all(row["identical"] and not row["differences"] and not row["violations"] for row in rows):
        raise SystemExit("two runs differ, or the audit found something")


if __name__ == "__main__":
    main()
