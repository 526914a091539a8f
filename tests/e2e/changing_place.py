"""Jobs that change their place while the cell that runs them is upgraded.

Each can be held at a gate, as a long start or a long mini-batch would hold it: a change of place that has begun before
the exchange of some process does not end before it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from libs.client import Client

SPARE_TYPE = "spare"
"""Of the GPUs that these jobs have to themselves."""
STARTS, BATCHES = "starts", "batches"
"""Gates: before the model is built; in the middle of each mini-batch."""
WIDEST = 2
"""GPUs of the job that grows, afterwards."""
SCRIPT = """
import itertools, os, sys, time
import libs.testing.quick_torch
import torch
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
            with (folder / f"{name}.{'losses' if last == sys.maxsize else 'by_hand'}").open("a") as file:
                file.write(loss.hex() + chr(10))
        ends = torch.tensor(float(number == last or (last == sys.maxsize and (folder / "end").exists())))
        if job.mean([ends] * len(losses)) > 0:  # all processes see it in the same mini-batch
            break
        time.sleep(0.0 if last < sys.maxsize else 0.2)
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
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

    def by_hand(self, mini_batches: int) -> dict[str, str]:
        """The environment in which its script trains so many without a cell, in one process."""
        return {"LAST": str(mini_batches - 1), "SANJAYA_VIRTUAL_RANKS": str(self.virtual_ranks)}

    def _file(self, gate: str, state: str) -> Path:
        return self.folder / f"{self.name}.{gate}.{state}"
