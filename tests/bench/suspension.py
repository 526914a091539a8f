"""How long it takes to bring a training process's memory off its device and back (Gandiva, OSDI'18, section 4.1).

    python -m tests.bench.suspension

On the first CUDA device where there is one, else on a virtual GPU (memory of the process, parked in a file in memory).
The baseline is one plain copy of as many bytes between the two, there and back, in the same run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from torch import nn
from torch_agent.harness.parking.arenas import FileArena, PinnedArena
from torch_agent.harness.parking.parking import Parker
from torch_agent.harness.parking.storages import skip_what_is_there

from tests.bench.report import Report

TIMES = 7
SMALL = "one linear layer"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def convolutional() -> nn.Module:
    """About as many parameters in about as many pieces as ResNet-50."""
    widths = [64, 128, 256, 512, 1024]
    blocks: list[nn.Module] = []
    for narrow, wide in pairwise(widths):
        blocks += [nn.Conv2d(narrow, wide, 3), nn.BatchNorm2d(wide), nn.Conv2d(wide, wide, 3), nn.BatchNorm2d(wide)]
        blocks += [nn.Conv2d(wide, wide, 1) for _ in range(8)]
    return nn.Sequential(*blocks)


def transformer(layers: int) -> nn.Module:
    """Layers of about 12.6 million parameters each."""
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(1024, 16, 4096), layers, enable_nested_tensor=False)


def trained(model: nn.Module, optimizer: Callable[[Any], torch.optim.Optimizer]) -> tuple[nn.Module, Any]:
    """With gradients and the optimizer's state, as after a step."""
    model = model.to(DEVICE)
    made = optimizer(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    made.step()
    return model, made


def measured(model: nn.Module, optimizer: Callable[[Any], torch.optim.Optimizer]) -> dict[str, Any]:
    """Park and unpark some times; the first time is told apart, because it makes the arena."""
    keep = trained(model, optimizer)
    parker, parks, unparks = Parker(torch), [], []
    for _ in range(TIMES + 1):
        began = time.perf_counter()
        parked = parker.park()
        parks.append(time.perf_counter() - began)
        unparks.append(parker.unpark())
    copy_s = plain_copy(parked.bytes_parked)
    pair_s = median(parks[1:]) + median(unparks[1:])
    del keep
    return {
        "device": torch.cuda.get_device_name() if DEVICE == "cuda" else "virtual GPU",
        "megabytes": round(parked.bytes_parked / 1e6, 1),
        "first_suspend_ms": round(1000 * parks[0], 1),
        "suspend_ms": round(1000 * median(parks[1:]), 1),
        "resume_ms": round(1000 * median(unparks[1:]), 1),
        "pair_ms": round(1000 * pair_s, 1),
        "plain_copy_pair_ms": round(1000 * copy_s, 1),
        "ratio_to_plain_copy": round(pair_s / copy_s, 2) if copy_s > 1e-3 else "",
        "left_bytes": parked.bytes_left,
    }


def plain_copy(size: int) -> float:
    """Seconds for one copy of so many bytes to the host's arena and one back, arena and destination being there."""
    here = torch.zeros(size, dtype=torch.uint8, device=DEVICE)
    arena = (PinnedArena(torch) if DEVICE == "cuda" else FileArena(torch)).open(size)[:size]
    times = []
    for _ in range(TIMES + 1):
        began = time.perf_counter()
        arena.copy_(here, non_blocking=True)
        here.copy_(arena, non_blocking=True)
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return median(times[1:])


def suspensions(only: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and figures of each model; `only`: of those with a name that begins so."""
    layers = 24 if DEVICE == "cuda" else 6
    made: dict[str, Callable[[], tuple[nn.Module, Callable[[Any], torch.optim.Optimizer]]]] = {
        f"{SMALL}, SGD": lambda: (nn.Linear(64, 64), lambda p: torch.optim.SGD(p, 0.1)),
        "convolutional, as large as ResNet-50, momentum": lambda: (
            convolutional(),
            lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
        ),
        f"transformer of {layers} layers, Adam": lambda: (transformer(layers), torch.optim.Adam),
    }
    for name, make in made.items():
        if only is None or name.startswith(only):
            yield name, measured(*make())


def main() -> None:
    """Measure and write the results."""
    torch.set_num_threads(1)
    skip_what_is_there()
    report = Report("suspension", "Suspend and resume of a training process")
    for name, row in suspensions():
        report.row(name, **row)
    report.write()


if __name__ == "__main__":
    main()
