"""An owner that waits for data, and a guest that never does; each leaves a line per mini-batch in a folder.

    python gate_script.py owner FOLDER COMPUTE_S WAIT_S     # lines: end, length, own CPU time, the guest's meanwhile
    python gate_script.py guest FOLDER                      # lines: end, length

The owner's mini-batches are of so much work as takes COMPUTE_S alone, times what the file `factor` says. While it
computes it measures the CPU time of the process that the file `guest` names: since both share a CPU, that process
stands still whenever the owner looks.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WIDTH, ROWS, LAYERS = 128, 64, 16
CALIBRATED_S = 0.5


class Slow(Dataset[torch.Tensor]):
    """Each batch takes a while to come."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s

    def __len__(self) -> int:
        return 1_000_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self._wait_s)
        return torch.ones(ROWS, WIDTH)


class Training:
    """Mini-batches of any number of layers, each a group of operations of some tenths of a millisecond."""

    def __init__(self) -> None:
        self._layer = nn.Linear(WIDTH, WIDTH)
        self._optimizer = torch.optim.SGD(self._layer.parameters(), lr=1e-6)

    def minibatch(self, batch: torch.Tensor, layers: int) -> None:
        """Forward through so many layers, back, and a step."""
        self._optimizer.zero_grad()
        found = torch.zeros_like(batch)
        for _ in range(layers):
            found = found + self._layer(batch).tanh()  # side by side: gradients that vanish would take much longer
        found.mean().backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()


def layers_for(compute_s: float) -> int:
    """So many that a mini-batch takes so long on a CPU of its own, whatever else runs there now."""
    training, batch, layers, began_s = Training(), torch.ones(ROWS, WIDTH), 100, time.process_time()
    times: list[float] = []
    while (now_s := time.process_time()) - began_s < CALIBRATED_S:
        training.minibatch(batch, layers)
        times.append(time.process_time() - now_s)
    return max(1, round(layers * compute_s / sorted(times)[len(times) // 2]))


def run_ns(pid: str) -> int:
    """CPU time of a process's first thread."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) if pid else 0


def owner(folder: Path, lines: IO[str], compute_s: float, wait_s: float) -> None:
    """Train for ever."""
    layers, training = layers_for(compute_s), Training()
    began_s = time.monotonic()
    for batch in DataLoader(Slow(wait_s), batch_size=None):
        factor, guest = (_content(folder / name) for name in ("factor", "guest"))
        before_ns, before_s = run_ns(guest), time.process_time()
        training.minibatch(batch, round(layers * float(factor or 1)))
        own_s, guest_s = time.process_time() - before_s, (run_ns(guest) - before_ns) / 1e9
        began_s, took_s = (now_s := time.monotonic()), now_s - began_s
        lines.write(f"{now_s} {took_s} {own_s} {guest_s}\n")


def guest(lines: IO[str]) -> None:
    """Train for ever."""
    training, began_s = Training(), time.monotonic()
    for batch in _batches():
        training.minibatch(batch, LAYERS)
        began_s, took_s = (now_s := time.monotonic()), now_s - began_s
        lines.write(f"{now_s} {took_s}\n")


def _batches() -> Iterator[torch.Tensor]:
    for number in itertools.count():
        yield torch.full((ROWS, WIDTH), float(number % 7))


def _content(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def main() -> None:
    torch.set_num_threads(1)
    role, folder = sys.argv[1], Path(sys.argv[2])
    with (folder / f"{role}.lines").open("w", buffering=1) as lines:
        if role == "owner":
            owner(folder, lines, *map(float, sys.argv[3:]))
        else:
            guest(lines)


if __name__ == "__main__":
    main()
