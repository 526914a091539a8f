"""What the live runs of modelled jobs have in common."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from statistics import median_low

import msgspec
import torch

from libs.contracts.agent import JobExited
from libs.sim.sharing.demands import Demand
from tests.e2e.gate_script import layers_for
from tests.e2e.gating import SharedCpu

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("_modelled_job.py")
SMALLER = 100
"""Memory of virtual GPUs and their jobs is so many times smaller than the paper's."""
FOR_EVER = 10**9
CALIBRATIONS = 5
LONGEST_RUN_S = 3600.0
"""Without a fact."""


@cache
def layers_of(compute_s: float) -> int:
    """How many layers take so much CPU time here: of several trials the one in the middle."""
    torch.set_num_threads(1)
    return median_low(layers_for(compute_s) for _ in range(CALIBRATIONS))


def command(name: str, folder: Path, minibatches: int, demand: Demand, *options: str) -> list[str]:
    """The command line of a job of so many mini-batches."""
    wanted = msgspec.json.encode(demand).decode()
    layers = layers_of(demand.minibatch_s * demand.busy_ratio)
    return [sys.executable, str(SCRIPT), name, str(folder), str(minibatches), str(layers), wanted, *options]


@contextmanager
def with_modules() -> Iterator[None]:
    """Tasks find the modules of this tree meanwhile."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *([before] if before else [])])
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


async def ended(gpu: SharedCpu, name: str) -> JobExited:
    """The end of a task, which may have been told already."""
    for fact in gpu.case.facts:
        if isinstance(fact, JobExited) and fact.job_id == name:
            return fact
    found: JobExited = await gpu.case.until(JobExited, lambda fact: fact.job_id == name, LONGEST_RUN_S)
    return found
