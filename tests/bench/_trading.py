"""Guests without an owner trade memory on trial: how good is the split that they come to? (Section 3.3, figure 10.)

Guests with a memory of 1/100 of the models', on one virtual GPU with 70 % of it, under a real agent. How fast each is
with how much is emulated, from figure 10 (`_modelled_job.py`); that they trade, and what they measure, is not. They
compute for a twentieth of a mini-batch of 0.2 s, so that memory decides, and a busy machine changes little.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from libs.contracts.agent import MemoryTraded
from libs.contracts.placement import SetMemoryLimit
from libs.coordination.recording import derive
from libs.sim.sharing.demands import Demand
from libs.studies.generators.antman_models import RESNET, VGG16
from tests.bench._load import BUSY, in_use, said
from tests.bench._modelled_job import read
from tests.bench._modelled_runs import FOR_EVER, SMALLER, command, with_modules
from tests.bench.report import Report
from tests.e2e.gating import SharedCpu

SHORT, MINIBATCH_S, BUSY_RATIO = 0.7, 0.2, 0.05
"""The GPU has this part of the memory that the guests want."""
UNLIKE = {"ResNet-50": RESNET, "VGG16": VGG16}
ALIKE = {f"VGG16-{number}": VGG16 for number in range(3)}
TENTHS = range(1, 10)
NEAR = 0.05
"""Traded splits are within this of the best one of the grid."""
NOISE = 0.01
"""By so much a sum of rates may be below that of the equal split because of what is measured."""
QUIET_S = 150.0
"""No trial has ended for so long: none follows."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Of the command line."""
    parser.add_argument("--trials", type=int, default=10, help="at most, a minute each")
    parser.add_argument("--alike-trials", type=int, default=6, help="of three identical guests; 0: not at all")
    parser.add_argument("--window-s", type=float, default=10.0, help="rates are measured for so long")


def run(options: argparse.Namespace) -> bool:
    """Measure and write the results; returns whether they are within their limits."""
    used = in_use()
    say = Report("antman_trading", f"Guests without an owner trade memory{said(used)}", module="antman")
    say.row("CPUs in use by others at the beginning", part=round(used, 2), within_limit=used <= BUSY)
    with with_modules(), tempfile.TemporaryDirectory() as folder:
        asyncio.run(_measure(Path(folder), say, options))
    say.write()
    return say.all_within_limits()


async def _measure(folder: Path, say: Report, options: argparse.Namespace) -> None:
    grid, best = await _grid(folder / "grid", options.window_s)
    for tenth, total in grid.items():
        say.row(f"{tenth} tenths for {next(iter(UNLIKE))}", sum_of_rates=round(total, 3))
    equal, most = grid[5], max(grid.values())
    trades, rates, same = await _traded(folder / "unlike", UNLIKE, options.trials, options.window_s)
    _tell_trades(say, trades)
    total = sum(rates[name] / best[name] for name in UNLIKE)
    say.row(
        f"after {len(trades)} trials",
        sum_of_rates=round(total, 3),
        equal_split=round(equal, 3),
        best_of_the_grid=round(most, 3),
        derived_again=same,
        within_limit=total >= equal * (1.0 - NOISE) and total >= most * (1.0 - NEAR) and same,
    )
    if options.alike_trials:
        trades, _, same = await _traded(folder / "alike", ALIKE, options.alike_trials, options.window_s)
        kept = sum(trade.kept for trade in trades)
        _tell_trades(say, trades)
        say.row(
            f"three identical guests after {len(trades)} trials",
            kept=kept,
            derived_again=same,
            within_limit=bool(trades) and not kept and same,
        )


def _tell_trades(say: Report, trades: Sequence[MemoryTraded]) -> None:
    for trade in trades:
        say.row(
            f"from {trade.from_job} to {trade.job_id}",
            mb=round(trade.moved_bytes / 1e6, 1),
            gain=trade.reason.numbers["gain_ratio"],
            kept=trade.kept,
        )


def _live(demand: Demand) -> Demand:
    memory = demand.memory_bytes // SMALLER
    return replace(demand, minibatch_s=MINIBATCH_S, busy_ratio=BUSY_RATIO, memory_bytes=memory)


def _wanted(models: Mapping[str, Demand]) -> int:
    return sum(_live(demand).memory_bytes for demand in models.values())


async def _begin(gpu: SharedCpu, models: Mapping[str, Demand]) -> None:
    for name, demand in models.items():
        await gpu.run(name, command(name, gpu.folder, FOR_EVER, _live(demand)), role="guest")


async def _rates(gpu: SharedCpu, names: Sequence[str], window_s: float) -> dict[str, float]:
    """Mini-batches per second of each from now on: by the one in the middle."""
    for name in names:
        await gpu.minibatches(name, 2)
    since_s = time.monotonic()
    await asyncio.sleep(window_s)
    return {
        name: 1.0 / median(each.took_s for each in read(gpu.folder, name) if each.at_s - each.took_s >= since_s)
        for name in names
    }


async def _grid(folder: Path, window_s: float) -> tuple[dict[int, float], dict[str, float]]:
    """{tenths of the memory for the first guest: sum of rates}, and the best rate of each, with all that it wants.

    On a GPU with room for both, where bounds by hand are all that limits them.
    """
    capacity, found = int(SHORT * _wanted(UNLIKE)), {}
    async with SharedCpu(folder, 2 * _wanted(UNLIKE)) as gpu:
        await _begin(gpu, UNLIKE)
        best = await _rates(gpu, list(UNLIKE), window_s)
        for tenth in TENTHS:
            parts = (capacity * tenth // 10, capacity - capacity * tenth // 10)
            for name, part in zip(UNLIKE, parts, strict=True):
                await gpu.case.order(SetMemoryLimit(node_id="n1", job_id=name, attempt=1, limit_bytes=part))
                await _has_at_most(gpu, name, part)
            rates = await _rates(gpu, list(UNLIKE), window_s / 2)
            found[tenth] = sum(rates[name] / best[name] for name in UNLIKE)
    return found, best


async def _has_at_most(gpu: SharedCpu, name: str, limit_bytes: int) -> None:
    """Until the guest has so much on the GPU, and all that it wants of it."""
    wanted = min(limit_bytes, _live(UNLIKE[name]).memory_bytes)
    while True:
        page = gpu.page(name)
        has = page.memory.device_bytes if page is not None and page.memory is not None else 0
        if 0.95 * wanted <= has <= limit_bytes:
            return
        await asyncio.sleep(0.1)


async def _traded(
    folder: Path, models: Mapping[str, Demand], most: int, window_s: float
) -> tuple[list[MemoryTraded], dict[str, float], bool]:
    """The trials, at most so many; each guest's rate after them; whether the records are derived again."""
    trades: list[MemoryTraded] = []
    async with SharedCpu(folder, int(SHORT * _wanted(models))) as gpu:
        await _begin(gpu, models)
        last_s = time.monotonic()
        while len(trades) < most and time.monotonic() - last_s < QUIET_S:
            fact = await gpu.case.next(within_s=5.0)
            if isinstance(fact, MemoryTraded):
                trades.append(fact)
                last_s = time.monotonic()
        rates = await _rates(gpu, list(models), window_s)
    records = sorted((folder / "n1" / "coordination" / "0").glob("*.jsonl"))
    steps = [step for path in records for step in derive(path.read_bytes().splitlines(keepends=True))]
    return trades, rates, bool(steps) and all(step.is_same for step in steps)
