"""How long `why` takes to say what would start a job, and how far the starts that it expects are off.

    python -m tests.bench.why [--policies backfill,philly] [--jobs 2000] [--questions 12] [--arrivals 400] [--cells 10]

Answers are measured at a gateway that follows the log of a cell with so many waiting jobs, over HTTP without a socket:
CPU time of this process, and the time on the clock, which is longer where the machine has other work (its load).
Starts are foreseen in a cell that is asked for more than its capacity, forty times while jobs arrive, for five waiting
jobs each, and compared with the simulation's. What jobs arrive later is not known to an expectation, which has them
arrive as they have so far; nor are lengths of jobs where the users do not state their steps. Jobs go on arriving for
half as long again behind the last question: an expectation knows as little of an end of all arrivals.

A hundred questions in one cell are asked about some thirty jobs that wait for the same to happen, and cells differ by
more than forms of an expectation do. So there are several cells, which differ in what is drawn.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from libs.bus import codec
from libs.contracts.gateway import PolicyChanged
from libs.contracts.read_models import JobState
from libs.forecast.arrivals import Arrivals
from libs.forecast.branch import Branch
from libs.forecast.errors import Track
from libs.forecast.expected import expected_start
from libs.sim.simulation import Simulation
from libs.testing.builders import OPERATOR, Scenario, Spec
from services.roster import SERVICES
from tests.bench.report import Report
from tests.integration.gateway_cell import memory_bus, running_cell

LIMIT_MS = 200.0
FIRST_CELL = 2
"""Seed of what is drawn for it; the next ones count on."""
WIDTHS = (1, 1, 1, 2, 4, 8, 16)


def full(policy: str, waiting: int) -> Simulation:
    """512 GPUs in use, and so many jobs that wait."""
    luck = random.Random(1)
    scenario = Scenario().servers(8, v100=512).plan(0.0, PolicyChanged(policy=policy, requested_by=OPERATOR))
    for number in range(waiting + 110):
        spec = Spec("resnet").gpus(luck.choice(WIDTHS)).tenant(luck.choice("abcd")).runs(luck.uniform(1e3, 2e4))
        scenario.job(f"job-{number:05}", at=1.0 + number * 0.01, spec=spec)
    simulation = scenario.build(SERVICES)
    while simulation.now_s < 60.0 and simulation.advance():
        pass
    simulation.dispatcher.settle()
    return simulation


def waiting(simulation: Simulation) -> list[str]:
    lives = simulation.lives.jobs.values()
    return [life.job_id for life in lives if life.state is JobState.QUEUED and not life.books.is_placed]


async def answers(policy: str, jobs: int, questions: int, folder: Path) -> dict[str, Any]:
    """How long the gateway takes."""
    simulation, bus = full(policy, jobs), await memory_bus()
    await bus.append([codec.outgoing(envelope) for envelope in simulation.log.control])
    asked = waiting(simulation)
    # The simulation is no part of a gateway: what collects cycles is not to walk over its objects meanwhile.
    gc.freeze()
    took_ms, cpu_ms = list[float](), list[float]()
    found, complete = 0, 0
    async with running_cell(folder, bus=bus, now=lambda: simulation.now_s) as cell:
        await cell.get("/v1/jobs")
        while (await cell.client.get(f"/v1/jobs/{asked[0]}/forecast")).status_code != 200:
            await asyncio.sleep(0.5)
        for job_id in asked[:: max(1, len(asked) // questions)]:
            began_s, began_cpu_s = time.perf_counter(), time.process_time()
            answer = await cell.client.get(f"/v1/jobs/{job_id}/forecast")
            took_ms.append((time.perf_counter() - began_s) * 1000)
            cpu_ms.append((time.process_time() - began_cpu_s) * 1000)
            assert answer.status_code == 200, answer.text
            found += bool(answer.json()["options"])
            complete += answer.json()["is_complete"]
    gc.unfreeze()
    return {
        "waiting": len(asked),
        "questions": len(took_ms),
        "with_options": found,
        "complete": complete,
        "median_cpu_ms": round(median(cpu_ms), 1),
        "p90_cpu_ms": round(quantiles(cpu_ms, n=10)[-1], 1),
        "median_ms": round(median(took_ms), 1),
        "load": round(os.getloadavg()[0] / (os.cpu_count() or 1), 1),
        "within_limit": quantiles(cpu_ms, n=10)[-1] < LIMIT_MS,
    }


def busy(policy: str, arrivals: int, seed: int, *, stated: bool) -> tuple[Simulation, float]:
    """64 GPUs and more work than they can do; `stated`: users say how many steps their jobs have.

    Returns:
        The simulation, and when the last of `arrivals` jobs arrives; half as many come after it.
    """
    luck = random.Random(seed)
    scenario = Scenario().servers(8, v100=64).options(profile_every_s=300.0)
    scenario.plan(0.0, PolicyChanged(policy=policy, requested_by=OPERATOR))
    at_s = last_s = 0.0
    for number in range(arrivals * 3 // 2):
        runs_s = luck.lognormvariate(7.5, 1.0)
        spec = Spec("resnet").gpus(luck.choice(WIDTHS)).tenant(luck.choice("abcd")).runs(runs_s)
        at_s += luck.expovariate(1 / 150)
        last_s = at_s if number < arrivals else last_s
        if stated:
            spec.with_(total_steps=runs_s, throughputs={"v100": 1.0})
        scenario.job(f"job-{number:05}", at=at_s, spec=spec)
    return scenario.build(SERVICES), last_s


@dataclass
class Foreseen:
    """What was said of the jobs of a cell, and how far it was off."""

    errors: list[float] = field(default_factory=list)
    """In parts of the wait that came."""
    off_s: list[float] = field(default_factory=list)
    took_ms: list[float] = field(default_factory=list)
    unknown: int = 0
    """Jobs that were not expected to start."""


def foreseen(policy: str, arrivals: int, seed: int, *, stated: bool) -> Foreseen:
    """Starts are foreseen in one cell, and come."""
    simulation, until_s = busy(policy, arrivals, seed, stated=stated)
    arrived, seen = Arrivals(), 0
    luck, track, next_s, found = random.Random(3), Track(), 3600.0, Foreseen()
    said = list[tuple[str, float]]()
    while simulation.advance():
        if not next_s <= simulation.now_s < until_s:
            continue
        next_s = simulation.now_s + until_s / 40
        simulation.dispatcher.settle()
        for envelope in simulation.log.control[seen:]:
            arrived.take(envelope)
        seen = len(simulation.log.control)
        asked = waiting(simulation)
        for job_id in luck.sample(asked, min(5, len(asked))):
            began_s = time.process_time()
            expected = expected_start(Branch(simulation.replicas, simulation.now_s, arrived=arrived.latest), job_id)
            found.took_ms.append((time.process_time() - began_s) * 1000)
            if expected.at_s is None:
                found.unknown += 1
            else:
                track.said(job_id, simulation.now_s, expected.at_s)
                said.append((job_id, expected.at_s))
    began = {job_id: outcome.first_start_s for job_id, outcome in simulation.outcomes.items()}
    found.off_s = [abs(at_s - came_s) for job_id, at_s in said if (came_s := began[job_id]) is not None]
    for job_id, start_s in began.items():
        if start_s is not None:
            track.started(job_id, start_s)
    found.errors = [error for _, error in track.kept.errors]
    return found


def starts(policy: str, arrivals: int, cells: int, *, stated: bool) -> dict[str, Any]:
    """How far expected starts are off over all cells, in parts of the wait that came, and in seconds."""
    each = [foreseen(policy, arrivals, FIRST_CELL + number, stated=stated) for number in range(cells)]
    errors = sorted(error for cell in each for error in cell.errors)
    off_s = [off for cell in each for off in cell.off_s]
    took_ms = [took for cell in each for took in cell.took_ms]
    found: dict[str, Any] = {
        "foreseen": len(took_ms),
        "not_expected_to_start": sum(cell.unknown for cell in each),
        "median_error": round(median(errors), 3) if errors else None,
        "by_cell": " ".join(f"{median(cell.errors):.3f}" for cell in each if cell.errors),
        "p90_error": round(errors[len(errors) * 9 // 10], 3) if errors else None,
        "median_error_s": round(median(off_s)) if off_s else None,
        "cpu_ms": round(median(took_ms), 1) if took_ms else None,
    }
    # What cannot be known without the steps has no limit.
    return found | ({"within_limit": bool(errors) and median(errors) < 0.2} if stated else {})


def main() -> None:
    """Measure and write the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--policies", default="backfill,philly,max_min_fairness,gandiva")
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--questions", type=int, default=12)
    parser.add_argument("--arrivals", type=int, default=400)
    parser.add_argument("--cells", type=int, default=10)
    arguments = parser.parse_args()
    report = Report("why", "What would start a job, and when it is expected to start")
    policies = arguments.policies.split(",")
    for policy in policies:
        with tempfile.TemporaryDirectory() as folder:
            found = asyncio.run(answers(policy, arguments.jobs, arguments.questions, Path(folder)))
        report.row(f"answer under {policy}", **found)
        report.write()
    for stated in (True, False):
        for policy in policies:
            known = "steps stated" if stated else "steps not stated"
            found = starts(policy, arguments.arrivals, arguments.cells, stated=stated)
            report.row(f"expected start under {policy}, {known}", **found)
            report.write()


if __name__ == "__main__":
    main()
