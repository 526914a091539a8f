"""`sanjaya simulate`: from files to a run, and to its result."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from libs.cli.context import FAILED, USAGE, fail
from libs.cli.progress import Watch
from libs.contracts.gateway import POLICY_NAMES, PolicyChanged
from libs.inspect.jsonl import write_jsonl
from libs.inspect.logs import simulated
from libs.sim.clusters import parse_cluster
from libs.sim.options import Options
from libs.sim.simulation import Simulation, Stalled
from libs.sim.throughputs import NO_THROUGHPUTS, read_throughputs
from libs.sim.traces import read_trace
from libs.sim.workloads import Planned, Workload, workload_of
from services.roster import SERVICES

EVERY = 1000
"""Steps between two updates of the progress."""


def run(
    *,
    trace: str,
    throughputs: str | None,
    cluster: str,
    gpus_per_server: int,
    policy: str,
    seed: int,
    checkpoint_overhead_s: float,
    measure: tuple[int, int] | None,
    out: str,
    log: Path | None,
    watch: Watch,
) -> None:
    """Simulate and write the result; ends the process with 2 on bad input and 1 when the run would never end."""
    if policy not in POLICY_NAMES:
        fail(f"unknown policy {policy!r}; there are {', '.join(POLICY_NAMES)}", USAGE)
    servers = parse_cluster(cluster, gpus_per_server)
    rates = read_throughputs(throughputs) if throughputs else NO_THROUGHPUTS
    warn = _warn if throughputs else None
    chosen = Planned(0.0, PolicyChanged(policy=policy, requested_by="simulate"))
    workload = Workload((chosen,)) + workload_of(read_trace(trace), rates, on_unknown=warn)
    options = Options(checkpoint_overhead_s=checkpoint_overhead_s, measure=measure, keep_log=log is not None)
    began = time.perf_counter()
    simulation = Simulation(SERVICES, servers, workload, seed=seed, options=options, throughputs=rates)
    try:
        simulation.run(_every(watch, measure, len(workload.jobs)))
    except Stalled as error:
        fail(str(error), FAILED)
    document = simulation.result(
        policy=policy,
        options={"checkpoint_overhead_s": checkpoint_overhead_s, "gpus_per_server": gpus_per_server},
        wall_s=round(time.perf_counter() - began, 3),
    )
    _write(document, out)
    if log is not None:
        positions = {name: replica.next_offset for name, replica in simulation.replicas.items()}
        with log.open("wb") as file:
            write_jsonl(simulated("simulation", simulation.log.control, simulation.log.orders, positions), file)


def _write(document: dict[str, Any], out: str) -> None:
    text = json.dumps(document, indent=1) + "\n"
    if out == "-":
        sys.stdout.write(text)
    else:
        Path(out).write_text(text)


def _every(watch: Watch, measure: tuple[int, int] | None, jobs: int) -> Callable[[Simulation], None]:
    """Tell now and then how many of the jobs have ended that the run waits for."""
    first, end = measure or (0, jobs)
    awaited = min(end, jobs) - min(first, jobs)
    steps = 0

    def counted(simulation: Simulation) -> None:
        nonlocal steps
        steps += 1
        if steps % EVERY == 0:
            arrived = list(simulation.outcomes.jobs.values())[first:end]
            watch(sum(job.finish_s is not None for job in arrived), awaited)

    return counted


def _warn(sentence: str) -> None:
    print(f"warning: {sentence}", file=sys.stderr)
