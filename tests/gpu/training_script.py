"""Trains on the GPU until it is ended, and leaves a line per mini-batch: when it ended, how long it took.

python training_script.py NAME FOLDER KIND RECORDS [WAIT_S]

It waits so long for each batch. Beside what the model takes, each mini-batch takes as many bytes as FOLDER/NAME.more
says. A mini-batch ends when the GPU has done it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.utils.data import DataLoader, IterableDataset

from tests.gpu.models import DEVICE, Training

CHUNK_BYTES = 1 << 28


class Batches(IterableDataset[int]):
    """Each takes a while to come."""

    def __init__(self, wait_s: float) -> None:
        super().__init__()
        self._wait_s = wait_s

    def __iter__(self) -> Iterator[int]:
        number = 0
        while True:
            if self._wait_s:
                time.sleep(self._wait_s)
            number += 1
            yield number


def main() -> None:
    torch.set_num_threads(1)
    name, folder, kind, records, *wait_s = sys.argv[1:]
    more = Path(folder) / f"{name}.more"
    training = Training(kind, int(records))
    with (Path(folder) / f"{name}.lines").open("w", buffering=1) as lines:
        for _ in DataLoader(Batches(float(*wait_s or (0,))), batch_size=None):
            began_s = time.monotonic()
            beside = int(more.read_text() or 0) if more.exists() else 0
            held = [torch.ones(CHUNK_BYTES, dtype=torch.uint8, device=DEVICE) for _ in range(beside // CHUNK_BYTES)]
            training.minibatch()
            if DEVICE == "cuda":
                torch.cuda.synchronize()
            del held
            ended_s = time.monotonic()
            lines.write(f"{ended_s} {ended_s - began_s}\n")


if __name__ == "__main__":
    main()
