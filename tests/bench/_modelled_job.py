"""Trains as a model of the AntMan paper does: so busy, with so much memory, slower with a part of it on the host.

    python _modelled_job.py NAME FOLDER MINIBATCHES LAYERS DEMAND [BESIDE] [--whole] [--fitted]

A mini-batch computes so many LAYERS. DEMAND is a `Demand` as JSON. The memory is real; what a mini-batch loses where a
part of it lies on the host is emulated: it waits for as long as the model's sensitivity (figure 10) says. BESIDE names
a file with the process of which CPU time is measured while this one computes. With `--whole` memory on the host is an
error, as without universal memory. With `--fitted` the number of layers changes during the first mini-batches, so that
these take the CPU time that DEMAND says: after a wait, and in the harness, a mini-batch costs about a millisecond
beside its layers. FOLDER/NAME.lines has a line per mini-batch, of `Minibatch`.
"""

from __future__ import annotations

import os
import sys
import time
from itertools import islice
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec
import torch
from torch.utils.data import DataLoader
from torch_agent.pages import pages

from libs.sim.sharing.demands import Demand
from tests.e2e.gate_script import Slow, Training, run_ns

CHUNK_BYTES = 1 << 20
WHOLE, FITTED = "--whole", "--fitted"
FITS, FIT_OF = 4, 20
"""So often layers are fitted, each time by so many mini-batches."""


class Minibatch(NamedTuple):
    """What a line says; seconds."""

    at_s: float
    """When it ended; CLOCK_MONOTONIC."""
    took_s: float
    own_s: float
    """CPU time of its computing."""
    beside_s: float
    """CPU time of the process beside it meanwhile."""
    work_s: float
    """CPU time that its computing takes where nothing else runs."""
    waits_s: float
    """For data, and for memory of the host, as far as it is wanted: not what a busy machine adds."""

    @property
    def on_gpu_s(self) -> float:
        """How long it took on a GPU that no process uses but the two of them.

        The same work takes up to twice the CPU time on a busy machine, for both of them: so what the other one had is
        counted by CPU time of this one.
        """
        return self.work_s * (1.0 + (self.beside_s / self.own_s if self.own_s else 0.0)) + self.waits_s


def read(folder: Path, name: str) -> list[Minibatch]:
    """Of its whole lines so far."""
    path = folder / f"{name}.lines"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [Minibatch(*map(float, line.split())) for line in lines if line.endswith("\n")]


def on_host() -> int:
    """Bytes of this process that do not fit onto the GPU."""
    found = pages(Path(os.environ["SANJAYA_HARNESS_DIR"]))
    return found[0].memory.host_bytes if found and found[0].memory is not None else 0


def ran_ns(pid: str, before_ns: int = 0) -> int:
    """CPU time of a process; of one that has ended, what it was before."""
    try:
        return run_ns(pid)
    except (FileNotFoundError, ProcessLookupError):
        return before_ns


class Layers:
    """The number of groups of operations in a mini-batch."""

    def __init__(self, count: int, work_s: float, fits: int = 0) -> None:
        """Begin with this number, which takes about `work_s`, and fit it so often."""
        self.count, self._fits = count, fits
        self._work_s, self._layer_s = work_s, work_s / count
        self._took_s: list[float] = []

    def took(self, own_s: float) -> None:
        """A mini-batch with them has taken so much CPU time."""
        if not self._fits:
            return
        self._took_s.append(own_s)
        if len(self._took_s) == FIT_OF:
            self.count = max(1, self.count + round((self._work_s - median(self._took_s)) / self._layer_s))
            self._took_s, self._fits = [], self._fits - 1


def train(name: str, folder: Path, count: int, layers: Layers, demand: Demand, beside: str, *, whole: bool) -> None:
    """So many mini-batches."""
    work_s = demand.minibatch_s * demand.busy_ratio
    wait_s = demand.minibatch_s - work_s
    held = [torch.ones(CHUNK_BYTES // 4) for _ in range(demand.memory_bytes // CHUNK_BYTES)]
    training, guest = Training(), folder / beside
    with (folder / f"{name}.lines").open("w", buffering=1) as lines:
        began_s = time.monotonic()
        for batch in islice(DataLoader(Slow(wait_s), batch_size=None), count):
            pid = guest.read_text() if beside and guest.exists() else ""
            before_ns, before_s = ran_ns(pid), time.process_time()
            training.minibatch(batch, layers.count)
            own_s, beside_s = time.process_time() - before_s, (ran_ns(pid, before_ns) - before_ns) / 1e9
            layers.took(own_s)
            if (lacks := on_host()) and whole:
                message = f"CUDA out of memory. Tried to allocate {lacks / 2**20:.2f} MiB more than the GPU has free"
                raise torch.OutOfMemoryError(message)
            longer_s = demand.minibatch_s * (1.0 / demand.speed_with(demand.memory_bytes - lacks) - 1.0)
            time.sleep(longer_s)
            began_s, took_s = (now_s := time.monotonic()), now_s - began_s
            done = Minibatch(now_s, took_s, own_s, beside_s, work_s, wait_s + longer_s)
            lines.write(" ".join(map(str, done)) + "\n")
    del held


def main() -> None:
    torch.set_num_threads(1)
    arguments = [each for each in sys.argv[1:] if each not in (WHOLE, FITTED)]
    name, folder, count, layers, demand, *beside = arguments
    wanted = msgspec.json.decode(demand, type=Demand)
    work_s = wanted.minibatch_s * wanted.busy_ratio
    fitted = Layers(int(layers), work_s, FITS if FITTED in sys.argv else 0)
    train(name, Path(folder), int(count), fitted, wanted, "".join(beside), whole=WHOLE in sys.argv)


if __name__ == "__main__":
    main()
