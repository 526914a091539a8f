"""Trains with as much memory as it is told, in mini-batches that coordination keeps up with.

python bursting_script.py FOLDER MEGABYTES RECORDS [LONGEST]    # an owner
python bursting_script.py FOLDER MEGABYTES SECONDS              # a guest, with so much rest in each mini-batch

It keeps so many megabytes, and takes what FOLDER/more says beside them. How many mini-batches a burst breaks is a
matter of how long they are: an owner's last until RECORDS, the folder of coordination's records, has three more steps,
and until the guests in them have done another mini-batch, for which it waits for LONGEST seconds at most. So a busy
machine changes nothing. FOLDER/end ends it. The losses, which do not depend on all that, are in FOLDER/PID.losses.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from pathlib import Path

import libs.testing.quick_torch  # noqa: F401 - before torch

# isort: split
import torch

MB, CHUNK = 1 << 20, 2 << 20
STEPS, LONGEST_S = 3, 1.0


class Coordination:
    """Its records, as far as they are there."""

    def __init__(self, folder: Path, longest_s: float) -> None:
        self._folder, self._path, self._at = folder, Path(), 0
        self._longest_s = longest_s
        self.steps = 0
        self.guests: dict[str, int] = {}
        """{guest: its mini-batches}."""

    def look(self) -> None:
        newest = max(self._folder.glob("*.jsonl"), default=self._path)
        if newest != self._path:
            self._path, self._at = newest, 0
        if not newest.name:
            return
        with newest.open("rb") as file:
            file.seek(self._at)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._at += len(line)
                if line.startswith(b"["):
                    self._take(json.loads(line)[1])

    def _take(self, readings: dict) -> None:
        self.steps += 1
        self.guests = {
            task["job_id"]: task.get("minibatches", 0)
            for task in readings.get("tasks", ())
            if task["guest"] and task.get("begun", True)
        }

    def wait(self) -> None:
        """Until it has gone on; where a guest has no mini-batch for long, that is not waited for."""
        self.look()
        steps, guests = self.steps, self.guests
        deadline = time.monotonic() + self._longest_s
        while self.steps < steps + STEPS or (not self._went_on(guests) and time.monotonic() < deadline):
            time.sleep(0.01)
            self.look()

    def _went_on(self, before: dict[str, int]) -> bool:
        return all(self.guests[guest] > done for guest, done in before.items() if guest in self.guests)


def main(folder: Path, megabytes: int, rest: str, longest_s: float = LONGEST_S) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    losses = (folder / f"{os.getpid()}.losses").open("w", buffering=1)
    layer = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    kept = torch.zeros(megabytes * MB // 4)
    seconds = float(rest) if rest.replace(".", "", 1).isdecimal() else None
    coordination = Coordination(Path(rest), longest_s)
    loader = torch.utils.data.DataLoader(torch.randn(500, 8, 64), batch_size=None)
    for batch in itertools.chain.from_iterable(itertools.repeat(loader)):
        more = folder / "more"
        wanted = int(more.read_text() or 0) if more.exists() else 0
        held = [torch.ones(CHUNK // 4) for _ in range(wanted * MB // CHUNK)]
        optimizer.zero_grad()
        loss = layer(batch).square().mean() + kept[:64].mean() + sum(each[0] for each in held) * 0
        loss.backward()
        optimizer.step()
        losses.write(f"{loss.item().hex()}\n")
        del held
        if seconds is None:
            coordination.wait()
        else:
            time.sleep(seconds)
        if (folder / "end").exists():
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], *map(float, sys.argv[4:]))
