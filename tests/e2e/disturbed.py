"""A job on a running cell that is disturbed while others are killed, and what its losses must be all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from torch_agent.harness import inject_path

from libs.cli.cell import Cell
from libs.client import Client, ClientError
from tests.e2e.test_rounds import wait_until

SCRIPT = """
import itertools, os, sys, time
import libs.testing.quick_torch
import torch
from pathlib import Path
from sanjaya_job import Job

torch.set_num_threads(1)
torch.manual_seed(0)
losses, end, last = Path(sys.argv[1]), Path(sys.argv[2]), int(os.environ.get("LAST", sys.maxsize))
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Dropout(0.2), torch.nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters())
job = Job(model=model, optimizer=optimizer, checkpoint_every=10)
for epoch in job.epochs(1):
    for number in job.batches(itertools.count()):
        loss = (model(torch.randn(16, 8)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with losses.open("a") as file:
            file.write(f"{number} {loss.item().hex()}\\n")
        if end.exists() or number == last:
            break
        time.sleep(0.0 if last < sys.maxsize else 0.1)
"""


def everywhere(steps: tuple[str, ...], victims: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """For each of the victims: that it is killed at every step."""
    return tuple((victim,) * len(steps) for victim in sorted(set(victims)))


def named(victims: tuple[str, ...]) -> str:
    """A name for what is killed, step by step."""
    return victims[0] if len(set(victims)) == 1 else "one each"


class DisturbedJob:
    """It trains until it is told to end, and keeps checkpoints."""

    def __init__(self, cell: Cell, client: Client, folder: Path, max_retries: int = 9) -> None:
        self.cell, self.client, self.folder = cell, client, folder
        self.losses, self._end = folder / "losses", folder / "end"
        (folder / "train.py").write_text(SCRIPT)
        command = [sys.executable, str(folder / "train.py"), str(self.losses), str(self._end)]
        self.job_id = str(client.submit({"name": "disturbed", "command": command, "max_retries": max_retries})["id"])
        self.until(lambda: self.seen("job.movable.v1"))

    def until(self, holds: Callable[[], object]) -> None:
        """Wait; the gateway is asked, and may be behind."""

        def patiently() -> object:
            try:
                return holds()
            except ClientError:
                return False

        wait_until(patiently)

    def seen(self, kind: str, after: int = -1) -> bool:
        """Whether an event of this type is on the log, behind this place."""
        return any(self.client.events(type=kind, from_offset=after + 1))

    def last_offset(self) -> int:
        return int(self.client.status()["next_offset"]) - 1

    def goes_on(self) -> None:
        """Wait for its next batch."""
        written = self.losses.stat().st_size
        self.until(lambda: self.losses.stat().st_size > written)

    def kill_task(self, node_id: str) -> None:
        """The newest one on a node, if it is still there."""
        started = [event["data"] for event in self.client.events(type="job.started.v1")]
        pids = [int(data["pid"]) for data in started if data["node_id"] == node_id]
        with suppress(ProcessLookupError):
            os.kill(pids[-1], signal.SIGKILL)

    def ends(self) -> None:
        """Let it end; then its losses are those of an undisturbed run, what was done twice included."""
        self._end.touch()
        self.until(lambda: self.client.job(self.job_id)["state"] == "SUCCEEDED")
        found: dict[int, set[str]] = {}
        for line in self.losses.read_text().splitlines():
            number, loss = line.split()
            found.setdefault(int(number), set()).add(loss)
        assert found == self._undisturbed(last=max(found))

    def _undisturbed(self, last: int) -> dict[int, set[str]]:
        losses = self.folder / "undisturbed"
        command = [sys.executable, str(self.folder / "train.py"), str(losses), str(self.folder / "never")]
        subprocess.run(command, env={**os.environ, "PYTHONPATH": inject_path(), "LAST": str(last)}, check=True)
        lines = [line.split() for line in losses.read_text().splitlines()]
        return {int(number): {loss} for number, loss in lines}

    def log(self) -> Path:
        """Everything that was said, in a file."""
        path = self.folder / "log.jsonl"
        path.write_bytes(b"".join(self.client.export()))
        return path
