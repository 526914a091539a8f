"""How long a job stands still when it moves to another agent, and how long it would if nothing had been made ready.

    python -m tests.bench.moves

Two agents on this machine, with virtual GPUs where there is no other, each in a process of its own; a script with a
Job notes the time of each step. The pause is the longest time between two steps around the move; the baseline, measured
in the same run, adds what happens before the pause while the source trains: starting the process, imports, building the
model.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import torch

from libs.contracts.agent import (
    JobExited,
    JobMovable,
    JobReady,
    JobRestored,
    JobResumed,
    JobStarted,
    JobSuspended,
    NodeJoined,
)
from libs.contracts.placement import RestoreTask, ResumeTask, StateSource, StopTask, SuspendTask
from libs.contracts.reasons import Reason
from libs.testing.builders import launch
from tests.bench.report import Report
from tests.integration.agent_case import AgentCase

MOVES = 4
SCRIPT = """
import itertools, sys, time
import torch
from sanjaya_job import Job
from tests.bench.suspension import DEVICE, convolutional, transformer

torch.set_num_threads(1)
make_model, make_optimizer = {
    "small": (lambda: torch.nn.Linear(64, 64), torch.optim.Adam),
    "convolutional": (convolutional, lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
    "transformer": (lambda: transformer(6), torch.optim.Adam),
}[sys.argv[1]]
model = make_model().to(DEVICE)
optimizer = make_optimizer(model.parameters())
job = Job(model=model, optimizer=optimizer)
for epoch in job.epochs(1):
    for number in job.batches(itertools.count()):
        for parameter in model.parameters():
            # The first step makes the optimizer's state; afterwards only the pause is of interest, not the step.
            parameter.grad = torch.zeros_like(parameter) if number == 0 else None
        optimizer.step()
        with open(sys.argv[2], "a") as file:
            file.write(f"{time.time()}\\n")
        time.sleep(0.02)
"""
SIZES = {
    "small": "one linear layer, Adam",
    "convolutional": "convolutional, as large as ResNet-50, momentum",
    "transformer": "transformer of 75 million parameters, Adam",
}
OTHER = {"n1": "n2", "n2": "n1"}


def moves(only: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and figures of each model; `only`: of this one of `SIZES`."""
    for size, name in SIZES.items():
        if only in (None, size):
            with tempfile.TemporaryDirectory() as folder:
                yield name, asyncio.run(moved(size, Path(folder)))


async def moved(size: str, folder: Path) -> dict[str, Any]:
    """Move a job to and fro; medians over the moves."""
    script, times = folder / "train.py", folder / "times"
    script.write_text(SCRIPT)
    rows: list[dict[str, float]] = []
    virtual_gpus = 0 if torch.cuda.is_available() else 4
    async with AgentCase(folder, "n1", "n2", virtual_gpus=virtual_gpus) as agents:
        joined = [await agents.fact(NodeJoined), await agents.fact(NodeJoined)]
        ports = {each.node_id: each.state_port for each in joined}
        paths = f"{Path.cwd()}:{os.environ.get('PYTHONPATH', '')}"
        order = launch("a", sys.executable, str(script), size, str(times), env={"PYTHONPATH": paths})
        await agents.order(order)
        await agents.fact(JobStarted, JobMovable)
        here = "n1"
        for attempt in range(1, MOVES + 1):
            there = OTHER[here]
            began = time.time()
            await agents.order(msgspec.structs.replace(order, node_id=there, attempt=attempt + 1, restores=True))
            await agents.fact(JobStarted, JobReady)
            ready = time.time()
            await agents.order(SuspendTask(node_id=here, job_id="a", attempt=attempt))
            suspended = await agents.fact(JobSuspended)
            source = StateSource(node_id=here, address="127.0.0.1", port=ports[here], first_rank=0)
            await agents.order(
                RestoreTask(node_id=there, job_id="a", attempt=attempt + 1, from_attempt=attempt, sources=[source])
            )
            restored = await agents.fact(JobRestored)
            reason = Reason(code="Bench", message="said by the benchmark")
            await agents.order(
                StopTask(node_id=here, job_id="a", attempt=attempt, grace_s=0.0, reason=reason),
                ResumeTask(node_id=there, job_id="a", attempt=attempt + 1),
            )
            facts = [await agents.next(), await agents.next()]
            assert {type(fact) for fact in facts} == {JobExited, JobResumed}
            pause_s = await pause_after(times, ready)
            rows.append(
                {
                    "state_megabytes": restored.state_bytes / 1e6,
                    "pause_ms": 1000 * pause_s,
                    "park_ms": 1000 * suspended.took_s,
                    "save_and_send_ms": 1000 * restored.fetch_s,
                    "load_ms": 1000 * restored.load_s,
                    "not_made_ready_ms": 1000 * (ready - began + pause_s),
                }
            )
            here = there
    found = {name: round(median(row[name] for row in rows), 1) for name in rows[0]}
    return found | {"ratio_to_not_made_ready": round(found["pause_ms"] / found["not_made_ready_ms"], 3)}


async def pause_after(times: Path, since_s: float) -> float:
    """The longest time between two steps since then, once there have been steps again."""
    while True:
        steps = [float(line) for line in times.read_text().split()]
        gaps = [b - a for a, b in pairwise(steps) if b > since_s]
        if gaps and max(gaps) > 0.05 and steps[-1] > since_s + max(gaps):
            return max(gaps)
        await asyncio.sleep(0.05)


def main() -> None:
    """Measure and write the results."""
    report = Report("moves", "A job moves to another agent")
    for name, row in moves():
        report.row(name, **row)
    report.write()


if __name__ == "__main__":
    main()
