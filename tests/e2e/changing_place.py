"""Jobs that change their place while the cell that runs them is upgraded.

Each can be held at a gate, as a long start or a long mini-batch would hold it: a change of place that has begun before
the exchange of some process does not end before it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch_agent.harness import inject_path

from libs.client import Client
from libs.testing.processes import ROOT

SPARE_TYPE = "spare"
"""Of the GPUs that these jobs have to themselves."""
STARTS, BATCHES = "starts", "batches"
"""Gates: before the model is built; in the middle of each mini-batch."""
WIDEST = 2
"""GPUs of the job that grows, afterwards."""
SCRIPT = """
import itertools, os, sys, time
import torch
from libs.testing.quick_torch import without_compiler
from libs.testing.thorough import THOROUGH
from pathlib import Path
from sanjaya_job import Job

folder, name, last = Path(sys.argv[1]), sys.argv[2], int(os.environ.get("LAST", sys.maxsize))

def passes(gate):
    while (folder / f"{name}.{gate}.closed").exists():
        (folder / f"{name}.{gate}.reached").touch()
        time.sleep(0.05)

passes("starts")
torch.set_num_threads(1)
torch.manual_seed(0)
if int(os.environ.get("WORLD_SIZE", "1")) > 1:
    torch.distributed.init_process_group("gloo")
    if not THOROUGH:
        without_compiler()  # only before the processes have met they would miss it
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Dropout(0.2), torch.nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters())
job = Job(elastic=True, model=model, optimizer=optimizer)
for _ in job.epochs(1):
    for number in job.batches(itertools.count()):
        optimizer.zero_grad()
        losses = []
        for samples in job.shards(torch.randn(16, 8, generator=torch.Generator().manual_seed(number))):
            losses.append((model(samples) - 1).square().mean())
            losses[-1].backward()
        optimizer.step()
        passes("batches")
        loss = job.mean(losses).item()
        if os.environ.get("RANK", "0") == "0":
            with (folder / f"{name}.{'trained' if last == sys.maxsize else 'by_hand'}").open("a") as file:
                file.write(f"{number} {loss.hex()}" + chr(10))
        ends = torch.tensor(float(number == last or (last == sys.maxsize and (folder / "end").exists())))
        if job.mean([ends] * len(losses)) > 0:  # all processes see it in the same mini-batch
            break
        time.sleep(0.0 if last < sys.maxsize else 0.05)
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
"""
BY_HAND = """
import json, os, runpy, sys
import libs.testing.quick_torch
import torch

folder = sys.argv[1]
children = []
for name, environment in json.loads(sys.argv[2]).items():
    children.append(os.fork())
    if children[-1] == 0:
        os.environ.update(environment)
        sys.argv = ["changing.py", folder, name]
        runpy.run_path(f"{folder}/changing.py", run_name="__main__")
        os._exit(0)
sys.exit(max(os.waitpid(child, 0)[1] for child in children) != 0)
"""


@dataclass(frozen=True)
class ChangingJob:
    """One that trains until it is told to end, and hands over its state or keeps a checkpoint of it when it must go."""

    job_id: str
    folder: Path
    name: str
    virtual_ranks: int

    @classmethod
    def submitted(cls, client: Client, folder: Path, name: str, *, grows: bool = False) -> ChangingJob:
        """Submit it, on one GPU.

        Args:
            grows: it may have more GPUs, and goes nowhere else; else it may go anywhere.
        """
        (folder / "changing.py").write_text(SCRIPT)
        command = [sys.executable, str(folder / "changing.py"), str(folder), name]
        spec: dict[str, Any] = {"command": command, "name": name, "gpus": f"{SPARE_TYPE}:1"}
        spec |= {"elastic": f"1:{WIDEST}"} if grows else {"restartable": True}
        return cls(str(client.submit(spec)["id"]), folder, name, WIDEST if grows else 1)

    def closes(self, gate: str) -> None:
        """Processes of the job that come to the gate stay there."""
        self._file(gate, "closed").touch()

    def stands_at(self, gate: str) -> bool:
        """Whether one has."""
        return self._file(gate, "reached").exists()

    def opens(self, gate: str) -> None:
        """They go on."""
        self._file(gate, "closed").unlink()

    def trained(self) -> list[str]:
        """Mini-batch and loss, in the order in which they were written."""
        return (self.folder / f"{self.name}.trained").read_text().splitlines()

    def _file(self, gate: str, state: str) -> Path:
        return self.folder / f"{self.name}.{gate}.{state}"


def trained_by_hand(folder: Path, jobs: Sequence[ChangingJob]) -> list[list[str]]:
    """What each would have written without a cell, in one process, after as many mini-batches."""
    (folder / "changing_by_hand.py").write_text(BY_HAND)
    environments = {
        job.name: {"LAST": str(len(job.trained()) - 1), "SANJAYA_VIRTUAL_RANKS": str(job.virtual_ranks)} for job in jobs
    }
    subprocess.run(
        [sys.executable, str(folder / "changing_by_hand.py"), str(folder), json.dumps(environments)],
        env={**os.environ, "PYTHONPATH": f"{inject_path()}:{ROOT}", "OMP_NUM_THREADS": "1"},
        check=True,
    )
    return [(folder / f"{job.name}.by_hand").read_text().splitlines() for job in jobs]
