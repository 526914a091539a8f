"""What the harness costs per mini-batch.

    python -m tests.bench.harness_overhead

Steps with the harness and without alternate in one process, in blocks, so that both see the same machine. The
isolated figure calls the harness's own path (step hook, request for a batch, page write) in a loop.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.optim import optimizer as optimizer_module
from torch_agent.harness import hooks
from torch_agent.harness.listening import listen_to_training

from tests.bench.report import Report

BLOCKS, ISOLATED = 60, 200_000
LIMIT_US, LIMIT_RATIO = 20.0, 0.01


def toy() -> tuple[nn.Module, torch.Tensor, torch.Tensor, int]:
    return (
        nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)),
        torch.randn(32, 64),
        torch.randint(10, (32,)),
        200,
    )


def cnn() -> tuple[nn.Module, torch.Tensor, torch.Tensor, int]:
    layers = [nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(256, 10))
    return model, torch.randn(64, 1, 16, 16), torch.randint(10, (64,)), 8


def training_step(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Callable[[], None]:
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def timed(step: Callable[[], None], times: int) -> float:
    """Seconds per step."""
    began = time.perf_counter()
    for _ in range(times):
        step()
    return (time.perf_counter() - began) / times


def main() -> None:
    torch.set_num_threads(1)
    plain_backward = torch.Tensor.backward
    with tempfile.TemporaryDirectory() as pages:
        os.environ["SANJAYA_HARNESS_DIR"] = pages
        harness = hooks.Harness(torch, pages)
        listen_to_training(torch, harness)
        hooked_backward = torch.Tensor.backward
        optimizer_hooks = optimizer_module._global_optimizer_post_hooks
        installed = dict(optimizer_hooks)
        report = Report("harness_overhead", "Cost of the harness per mini-batch")

        def switch(on: bool) -> None:
            torch.Tensor.backward = hooked_backward if on else plain_backward
            optimizer_hooks.clear()
            if on:
                optimizer_hooks.update(installed)

        for name, make in (("toy MLP", toy), ("small CNN", cnn)):
            model, x, y, times = make()
            step = training_step(model, x, y)
            timed(step, 3 * times)
            off, on = [], []
            for _ in range(BLOCKS):
                for figures, enabled in ((off, False), (on, True)):
                    switch(enabled)
                    figures.append(timed(step, times))
            base_us, with_us = statistics.median(off) * 1e6, statistics.median(on) * 1e6
            paired_us = statistics.median([b - a for a, b in zip(off, on, strict=True)]) * 1e6
            report.row(
                name,
                step_us=round(base_us, 1),
                step_with_harness_us=round(with_us, 1),
                overhead_us=round(paired_us, 2),
                overhead_ratio=round(paired_us / base_us, 4),
                limit_us=round(LIMIT_US + LIMIT_RATIO * base_us, 1),
                within_limit=paired_us < LIMIT_US + LIMIT_RATIO * base_us,
            )
        switch(True)
        loss, optimizer = torch.zeros(()), object()

        def isolated() -> None:
            harness.backward(loss)
            harness.stepped(optimizer)
            harness.batch_requested()

        report.row("isolated, no training", overhead_us=round(timed(isolated, ISOLATED) * 1e6, 2))
        report.write()
    sys.exit(0 if report.all_within_limits() else 1)


if __name__ == "__main__":
    main()
