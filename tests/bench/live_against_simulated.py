"""One workload live and simulated: 20 jobs on 8 virtual GPUs under max-min fairness with rounds of 5 s.

    python -m tests.bench.live_against_simulated

The jobs train a model by gradient descent, a step every 50 ms, and are taken off their GPUs through the lease
iterator. The simulation knows the arrivals, the rates that were measured live, and the mean delays of starting and
stopping a task; services, policy and rounds are the same code.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client
from libs.contracts.agent import JobExited, JobStarted
from libs.contracts.envelope import Record
from libs.contracts.gateway import JobArrived, PolicyChanged, SettingChanged
from libs.contracts.placement import JobPlaced, JobPreempted, JobSucceeded
from libs.inspect.sources import open_log
from libs.inspect.verify import verify
from libs.sim.clusters import cluster_of
from libs.sim.options import Options
from libs.sim.simulation import Simulation
from libs.sim.traces import TraceJob
from libs.sim.workloads import Planned, Workload, workload_of
from services.roster import SERVICES
from tests.bench.report import Report

JOBS, AGENTS, GPUS, ROUND_S, PAUSE_S = 20, 2, 4, 5.0, 0.05
FINAL = ("SUCCEEDED", "FAILED", "CANCELLED", "REJECTED")
SCRIPT = """
import json, sys, time
from sanjaya_lease import LeaseIterator

steps, weight = int(sys.argv[1]), 0.0

def save(path):
    json.dump(weight, open(path, "w"))

def load(path):
    global weight
    weight = json.load(open(path))

lease = LeaseIterator(range(10**9), save=save, load=load)
began, done = time.monotonic(), lease.batches_done
for _ in lease:
    weight -= 0.1 * (weight - 3.0)
    time.sleep(PAUSE)
    if lease.batches_done + 1 == steps:
        break
print("rate", (steps - done) / (time.monotonic() - began), flush=True)
""".replace("PAUSE", str(PAUSE_S))


def live(folder: Path) -> tuple[list[Record], float]:
    """The control log of the live run, and the rate that the jobs report."""
    script = folder / "train.py"
    script.write_text(SCRIPT)
    plan = CellPlan(state_dir=folder / "cell", agents=AGENTS, gpus_per_agent=GPUS, gateway_port=free_port())
    luck = random.Random(7)
    with Cell(plan), Client(plan.gateway_url) as client:
        client.set_setting("placement", "round_s", ROUND_S)
        client.set_policy("max_min_fairness")
        jobs = []
        for number in range(JOBS):
            steps = luck.randrange(400, 1400)
            job = {"command": [sys.executable, str(script), str(steps)], "name": f"job-{number}", "total_steps": steps}
            jobs.append(client.submit({**job, "throughputs": {"virtual": 1 / PAUSE_S}, "restartable": True})["id"])
            time.sleep(luck.expovariate(1 / 2.0))
        while not all(client.job(job)["state"] in FINAL for job in jobs):
            time.sleep(1)
        rates = [float(str(line["text"]).split()[1]) for job in jobs for line in client.logs(job)]
        (folder / "log.jsonl").write_bytes(b"".join(client.export()))
    with open_log(str(folder / "log.jsonl"), cell="local") as log:
        assert verify(log, SERVICES).ok
    with open_log(str(folder / "log.jsonl"), cell="local") as log:
        return list(log.control()), mean(rates)


def delays(records: list[Record]) -> tuple[float, float]:
    """Mean seconds from JobPlaced to JobStarted, and from JobPreempted to JobExited."""
    placed: dict[tuple[str, int], float] = {}
    preempted: dict[tuple[str, int], float] = {}
    starts, stops = [], []
    for record in records:
        event, at_s = record.envelope.event, record.appended_at_s
        if isinstance(event, JobPlaced):
            placed[event.job_id, event.attempt] = at_s
        elif isinstance(event, JobPreempted):
            preempted[event.job_id, event.attempt] = at_s
        elif isinstance(event, JobStarted):
            starts.append(at_s - placed[event.job_id, event.attempt])
        elif isinstance(event, JobExited) and (event.job_id, event.attempt) in preempted:
            stops.append(at_s - preempted[event.job_id, event.attempt])
    return mean(starts), mean(stops)


def simulated(records: list[Record], rate: float, start_s: float, stop_s: float) -> list[Record]:
    """The same arrivals through the same services, on simulated nodes."""
    first_s = arrivals(records)[0][0]
    jobs = [
        TraceJob(
            job_id=event.job_id,
            submit_time_s=at_s - first_s,
            gpus=1,
            duration_s=(event.spec.total_steps or 0.0) / rate,
        )
        for at_s, event in arrivals(records)
    ]
    policy = PolicyChanged(policy="max_min_fairness", requested_by="bench")
    round_s = SettingChanged(service="placement", name="round_s", value=ROUND_S, requested_by="bench")
    workload = Workload((Planned(0.0, policy), Planned(0.0, round_s))) + workload_of(jobs)
    options = Options(start_delay_s=start_s, stop_delay_s=stop_s)
    simulation = Simulation(SERVICES, cluster_of({"virtual": AGENTS * GPUS}, GPUS), workload, options=options)
    simulation.run()
    return list(simulation.records())


def arrivals(records: list[Record]) -> list[tuple[float, JobArrived]]:
    return [(r.envelope.time_s, r.envelope.event) for r in records if isinstance(r.envelope.event, JobArrived)]


def figures(records: list[Record]) -> tuple[float, float, int]:
    """Average JCT and makespan in seconds, preemptions."""
    begins = {event.job_id: at_s for at_s, event in arrivals(records)}
    ends = {r.envelope.event.job_id: r.envelope.time_s for r in records if isinstance(r.envelope.event, JobSucceeded)}
    assert len(ends) == JOBS
    taken_off = sum(isinstance(r.envelope.event, JobPreempted) for r in records)
    return mean(ends[job] - begins[job] for job in ends), max(ends.values()) - min(begins.values()), taken_off


def main() -> None:
    """Run both and write the results."""
    with tempfile.TemporaryDirectory() as folder:
        records, rate = live(Path(folder))
    start_s, stop_s = delays(records)
    real, model = figures(records), figures(simulated(records, rate, start_s, stop_s))
    report = Report("live_against_simulated", "A workload of 20 jobs on 8 virtual GPUs, live and simulated")
    for name, measured, expected in zip(("average JCT (s)", "makespan (s)", "preemptions"), real, model, strict=True):
        report.row(name, live=round(measured, 2), simulated=round(expected, 2), ratio=round(expected / measured, 4))
    report.row("rate measured live (steps/s)", live=round(rate, 3))
    report.row("from placed to started (ms)", live=round(1000 * start_s, 1))
    report.row("from preempted to exited (ms)", live=round(1000 * stop_s, 1))
    report.write()


if __name__ == "__main__":
    main()
