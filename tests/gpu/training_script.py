"""Trains on the GPU until it is ended, and leaves a line per mini-batch: when it ended, how long it took.

python training_script.py NAME FOLDER KIND RECORDS [WAIT_S] [HELD_BYTES]

It waits so long for each batch, and holds so many bytes all the time, of which a mini-batch reads a little, as of a
table of embeddings. Beside what the model takes, each mini-batch takes as many bytes as FOLDER/NAME.more says. A
mini-batch ends when the GPU has done it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from tests.gpu.models import DEVICE, Training

LARGEST_BYTES, PARTS = 1 << 28, 8
READ_BYTES = 1 << 12
"""Of each tensor that it holds."""


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


def _filled(size: int) -> list[Tensor]:
    """So many bytes in tensors of equal size."""
    part = min(LARGEST_BYTES, size // PARTS)
    return [torch.ones(part, dtype=torch.uint8, device=DEVICE) for _ in range(size // part if part else 0)]


def main() -> None:
    torch.set_num_threads(1)
    name, folder, kind, records, *rest = sys.argv[1:]
    wait_s, held_bytes = [*map(float, rest), 0.0, 0.0][:2]
    more = Path(folder) / f"{name}.more"
    training, held = Training(kind, int(records)), _filled(int(held_bytes))
    with (Path(folder) / f"{name}.lines").open("w", buffering=1) as lines:
        for _ in DataLoader(Batches(wait_s), batch_size=None):
            began_s = time.monotonic()
            beside = _filled(int(more.read_text() or 0)) if more.exists() else []
            for each in held:
                each[:READ_BYTES].sum()
            training.minibatch()
            if DEVICE == "cuda":
                torch.cuda.synchronize()
            del beside
            ended_s = time.monotonic()
            lines.write(f"{ended_s} {ended_s - began_s}\n")


if __name__ == "__main__":
    main()
