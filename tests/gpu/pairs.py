"""Two training processes on one device, together and by turns: does sharing gain what introspection would say?

python -m tests.gpu.pairs KIND SECONDS      # one process: prints mini-batches per second
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KINDS = ("autoencoder", "super-resolution", "convolutional")
"""From one that leaves most of a GPU idle to one that fills it."""


def pairs(seconds: float, kinds: Sequence[str] = KINDS) -> Iterator[dict[str, Any]]:
    """One row per kind: its rate alone, and what two of it keep together; by turns they would keep 1."""
    for kind in kinds:
        [alone] = _rates([kind], seconds)
        together = _rates([kind, kind], seconds)
        yield {
            "kind": kind,
            "alone_per_s": round(alone, 1),
            "together_per_s": " ".join(f"{rate:.1f}" for rate in together),
            "parts_together": round(sum(together) / alone, 3),
        }


def _rates(kinds: list[str], seconds: float) -> list[float]:
    command = [sys.executable, "-m", "tests.gpu.pairs"]
    processes = [subprocess.Popen([*command, kind, str(seconds)], stdout=subprocess.PIPE, text=True) for kind in kinds]
    said = [process.communicate()[0] for process in processes]
    return [float(text) for text in said]


def train(kind: str, seconds: float) -> float:
    """Mini-batches per second of one process, after a short warm-up."""
    torch.set_num_threads(1)
    model, shape = _model(kind)
    model = model.to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    done, began = 0, 0.0
    while not began or time.perf_counter() - began < seconds:
        loss = model(torch.randn(*shape, device=DEVICE)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += 1
        if done % 5 == 0:
            loss.item()
        if not began and done >= 5:
            began, done = time.perf_counter(), 0
    return done / (time.perf_counter() - began)


def _model(kind: str) -> tuple[nn.Module, tuple[int, ...]]:
    if kind == "autoencoder":
        return nn.Sequential(nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 784)), (128, 784)
    if kind == "super-resolution":
        layers = [nn.Conv2d(1, 64, 5, padding=2), nn.ReLU(), nn.Conv2d(64, 9, 3, padding=1), nn.PixelShuffle(3)]
        return nn.Sequential(*layers), (8, 1, 64, 64)
    widths = (3, 64, 128, 256)
    blocks: list[nn.Module] = []
    for narrow, wide in pairwise(widths):
        blocks += [nn.Conv2d(narrow, wide, 3, 2, 1), nn.ReLU(), nn.Conv2d(wide, wide, 3, 1, 1), nn.ReLU()]
    side, batch = (224, 64) if DEVICE == "cuda" else (32, 8)
    return nn.Sequential(*blocks), (batch, 3, side, side)


if __name__ == "__main__":
    print(train(sys.argv[1], float(sys.argv[2])))
