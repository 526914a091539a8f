"""Trains for ever on what a loader with so many workers as the command line says gives it."""

from __future__ import annotations

import itertools
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset[torch.Tensor]):
    """Each sample takes a while to come."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.02)
        return torch.full((8,), float(index))


def main() -> None:
    layer = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-9)
    for _ in itertools.count():
        for batch in DataLoader(Slow(), num_workers=int(sys.argv[1])):
            optimizer.zero_grad()
            layer(batch).mean().backward()
            optimizer.step()


if __name__ == "__main__":
    main()
