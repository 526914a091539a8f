"""Owners beside guests, pair by pair: how many are slowed down? (Section 5.3, table 5.)

Each pair of examples is on one virtual GPU with a CPU of its own, under a real agent. Blocks with the guest stopped and
with both follow one another; each is a profile, and the rules are those of introspection. These compare wall times,
which on a machine that is shared with others scatter by more than what is looked for. How long owners could have run
and another process did, by the kernel's account, is not touched by that, and stands beside them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from libs.policies.estimation.slowdown import RELATIVE_RATIO, Slowdown, slowdown
from tests.bench._load import BUSY, in_use, said
from tests.bench.report import Report
from tests.e2e.gating import CpuTime, SharedCpu, example

Figures = dict[str, Any]
OWNERS = (
    ("mlp",),
    ("cnn",),
    ("autoencoder",),
    ("lstm",),
    ("transformer",),
    ("mlp", "--pause", "0.05"),
    ("cnn", "--pause", "0.05"),
    ("lstm", "--pause", "0.2"),
)
GUESTS = ("mlp", "cnn", "autoencoder", "lstm", "transformer")
SETTLED = 25
"""Mini-batches after which an owner is stable beside a guest that has come."""
BLOCKS_LEAST = 3
"""Of each kind: the scatter of fewer says nothing."""


@dataclass(frozen=True)
class Block:
    """Some of an owner's mini-batches."""

    minibatch_s: float
    """Mean length."""
    waited_ratio: float
    """Time in which its thread could have run and another one did, by the rest of the time."""


@dataclass(frozen=True)
class Measured:
    """One pair: mean lengths of the owner's mini-batches, a block each."""

    alone_s: list[float]
    beside_s: list[float]
    waited_ratio: float
    """By how much it takes longer beside the guest because another process has the CPU, in the mean of all blocks."""
    guest_per_s: float

    @property
    def slowdown(self) -> Slowdown:
        """Of the block in the middle."""
        return slowdown(self.alone_s, median(self.beside_s))

    @property
    def figures(self) -> Figures:
        """Its row of the results."""
        return {
            "alone_ms": round(self.slowdown.alone_s * 1e3, 2),
            "beside_ms": round(self.slowdown.beside_s * 1e3, 2),
            "slowed_by": round(self.slowdown.excess_ratio, 4),
            "waited_ratio": round(self.waited_ratio, 4),
            "guest_per_s": round(self.guest_per_s, 1),
            "slowed_by_the_papers_rule": self.slowdown.by_absolute_rule,
            "slowed_by_the_relative_rule": self.slowdown.by_relative_rule,
        }


RULES: dict[str, tuple[float, Callable[[Figures], bool]]] = {
    "the paper's rule, 10 ms": (0.99, lambda pair: bool(pair["slowed_by_the_papers_rule"])),
    "the relative rule, 3 % beyond the scatter": (0.95, lambda pair: bool(pair["slowed_by_the_relative_rule"])),
    "waiting for the CPU, 3 %": (0.95, lambda pair: pair["waited_ratio"] > RELATIVE_RATIO),
}
"""{rule: part of the owners that are not slowed down by it, at least; the rule}."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Of the command line."""
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--blocks", type=int, default=5, help=f"of each kind, {BLOCKS_LEAST} at least")
    parser.add_argument("--block-s", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--kept", type=Path, help="each pair is added to this file; an interrupted run goes on after it"
    )


def run(options: argparse.Namespace) -> bool:
    """Measure and write the results; returns whether they are within their limits."""
    used = in_use()
    say = Report("antman_pairs", f"Owners beside guests, pair by pair{said(used)}", module="antman")
    say.row("CPUs in use by others at the beginning", part=round(used, 2), within_limit=used <= BUSY)
    with tempfile.TemporaryDirectory() as folder:
        pairs = asyncio.run(_measure(Path(folder), say, options))
    for rule, (least, is_slowed) in RULES.items():
        named = [name for name, figures in pairs if is_slowed(figures)]
        part = 1.0 - len(named) / len(pairs)
        exceptions = "; ".join(named) or "none"
        say.row(f"owners not slowed by {rule}", part=round(part, 3), exceptions=exceptions, within_limit=part >= least)
    say.write()
    return say.all_within_limits()


def drawn(count: int, seed: int) -> list[tuple[tuple[str, ...], str]]:
    """So many pairs; none comes again before all others have."""
    found: list[tuple[tuple[str, ...], str]] = []
    source = random.Random(seed)
    while len(found) < count:
        every = [(owner, guest) for owner in OWNERS for guest in GUESTS]
        source.shuffle(every)
        found += every
    return found[:count]


async def _measure(folder: Path, say: Report, options: argparse.Namespace) -> list[tuple[str, Figures]]:
    pairs = drawn(options.pairs, options.seed)
    kept: Path = options.kept or folder / "kept"
    found = _read(kept, pairs)
    for name, figures in found:
        say.row(name, **figures)
    async with SharedCpu(folder / "node") as gpu:
        for number, (owner, guest) in enumerate(pairs[len(found) :], 1):
            name = _name(owner, guest)
            pair = await _pair(gpu, number, owner, guest, max(BLOCKS_LEAST, options.blocks), options.block_s)
            found.append((name, pair.figures))
            with kept.open("a") as file:
                file.write(json.dumps([name, pair.figures]) + "\n")
            say.row(name, **pair.figures)
    return found


def _read(kept: Path, pairs: Sequence[tuple[tuple[str, ...], str]]) -> list[tuple[str, Figures]]:
    """The pairs that were measured before the run was interrupted."""
    lines = kept.read_text().splitlines() if kept.exists() else []
    found = [(name, figures) for name, figures in map(json.loads, lines)][: len(pairs)]
    for (name, _), pair in zip(found, pairs, strict=False):
        if name != _name(*pair):
            raise SystemExit(f"{kept}: has {name!r}; expected {_name(*pair)!r}, as with the same seed")
    return found


def _name(owner: tuple[str, ...], guest: str) -> str:
    return f"{' '.join(owner)} beside {guest}"


async def _pair(
    gpu: SharedCpu, number: int, owner: tuple[str, ...], guest: str, blocks: int, block_s: float
) -> Measured:
    first, second = f"owner-{number}", f"guest-{number}"
    # The guest first: beside an owner that never waits it would begin with the few percent that are left to it.
    await gpu.run(second, example(guest), role="guest")
    await gpu.run(first, example(*owner), role="owner")
    await gpu.minibatches(first, SETTLED)
    alone, beside, rates = [], [], []
    for _ in range(blocks):
        await gpu.bound(second, 0.0)
        with gpu.stopped(second):
            alone.append(await _block(gpu, first, block_s))
        await gpu.bound(second, None)
        before = gpu.done(second)
        beside.append(await _block(gpu, first, block_s))
        rates.append((gpu.done(second) - before) / block_s)
    await gpu.stop(first, second)
    return Measured(
        [each.minibatch_s for each in alone],
        [each.minibatch_s for each in beside],
        fmean(each.waited_ratio for each in beside) - fmean(each.waited_ratio for each in alone),
        median(rates),
    )


async def _block(gpu: SharedCpu, name: str, block_s: float) -> Block:
    """Its mini-batches from now on, from boundary to boundary."""
    await gpu.minibatches(name, 1)
    first, before, began_s = gpu.page(name), CpuTime.of(gpu.pids[name]), time.monotonic()
    await asyncio.sleep(block_s)
    await gpu.minibatches(name, 1)
    last, took_s = gpu.page(name), time.monotonic() - began_s
    waited_s = CpuTime.of(gpu.pids[name]).since(before).ready_s
    assert first is not None and last is not None
    minibatch_s = (last.last_boundary_s - first.last_boundary_s) / (last.minibatches_total - first.minibatches_total)
    return Block(minibatch_s, waited_s / (took_s - waited_s))
