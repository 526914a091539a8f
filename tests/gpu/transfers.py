"""How fast bytes move between device and host: what bounds every suspension."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import torch

TIMES = 5
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def transfers(sizes: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """One row per size, in GB/s: pinned memory both ways, pageable memory, and locking pages."""
    for size in sizes:
        here = torch.zeros(size, dtype=torch.uint8, device=DEVICE)
        pinned, pin_s = _pinned(size)
        pageable = torch.zeros(size, dtype=torch.uint8)
        yield {
            "megabytes": round(size / 1e6),
            "pinned_out_gb_per_s": _speed(size, lambda a=pinned, b=here: a.copy_(b, non_blocking=True)),
            "pinned_in_gb_per_s": _speed(size, lambda a=here, b=pinned: a.copy_(b, non_blocking=True)),
            "pageable_out_gb_per_s": _speed(size, lambda a=pageable, b=here: a.copy_(b)),
            "locking_pages_gb_per_s": round(size / pin_s / 1e9, 2),
        }


def _pinned(size: int) -> tuple[torch.Tensor, float]:
    """Page-locked where there is a GPU; and how long it took."""
    began = time.perf_counter()
    memory = torch.empty(size, dtype=torch.uint8, pin_memory=DEVICE == "cuda")
    memory.fill_(0)
    return memory, time.perf_counter() - began


def _speed(size: int, copy: Callable[[], object]) -> float:
    times = []
    for _ in range(TIMES + 1):
        began = time.perf_counter()
        copy()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return round(size / median(times[1:]) / 1e9, 2)
