"""Trains with as much memory as its command line and a file say; ends when another file is there."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader

MB = 1_000_000


def main() -> None:
    torch.set_num_threads(1)
    megabytes, pause_s, folder = int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])
    layer = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    kept = torch.zeros(megabytes * MB // 4)
    batches = DataLoader(torch.randn(100_000, 8, 64), batch_size=None)
    for batch in batches:
        more = folder / "more"
        wanted = int(more.read_text() or 0) if more.exists() else 0
        held = torch.ones(wanted * MB // 4)
        optimizer.zero_grad()
        (layer(batch).square().mean() + kept[:64].mean() + held[:64].sum() * 0).backward()
        optimizer.step()
        del held
        time.sleep(pause_s)
        if (folder / "end").exists():
            return


if __name__ == "__main__":
    main()
