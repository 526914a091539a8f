"""What a guest costs the owner of its GPU, and what it gets (AntMan, OSDI'20, sections 3.1.2 and 3.3), in wall time.

    python -m tests.bench.guests [--rounds N] [--block-s S] [--share-s S] [--phase-s S]

An owner that waits two thirds of its time and a guest that never waits, on one virtual GPU with a CPU of its own, under
a real agent. Blocks with the guest stopped, packed beside the owner without gates, and behind its gates follow one
another, so that each ratio is of neighbours. On a busy machine these ratios are noise: the results say whether it was,
and `tests/e2e/test_gate.py` asks for what holds there, too.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from libs.sim.sharing.demands import GIB, Demand
from libs.sim.sharing.episodes import News, coordinated
from tests.bench._gate_costs import tell_costs
from tests.bench._load import BUSY, in_use, said
from tests.bench.report import Report
from tests.e2e.gating import COMPUTE_S, GUEST, OWNER, WAIT_S, CpuTime, Minibatch, SharedCpu, beside, example

FREE_LEAST, GUARDED_MOST, GUEST_LEAST, BESIDE_MOST = 0.30, 0.04, 0.50, 0.05
"""Slowdown of the owner beside a free guest, else the run says nothing; behind gates; the guest's rate; CPU time."""
CAPACITY_BYTES, ALIKE = 32 * GIB, 0.05
"""Of the simulated GPU, more than both want; live and simulated progress differ by no more."""
SHARES, SHARE_OFF = (0.1, 0.25, 0.5, 0.75), 0.05
FACTORS, BACK_S, WINDOW_S = (0.8, 1.2, 3.0), 60.0, 5.0
"""Of the owner's work; it is to be back within the limit so soon, in windows of this length."""
SETTLED = 25
"""Mini-batches after which an owner is stable beside a guest that has come."""
EXAMPLES, EXAMPLE_S, SPACING_MOST_S = ("mlp", "cnn", "autoencoder", "lstm", "transformer"), 5.0, 0.010


@dataclass
class Alone:
    """What the owner does while the guest stands still; what its process waits for the CPU is none of its time."""

    run_s: float = 0.0
    """CPU time of its thread: of its computing, its loader and its harness."""
    on_gpu_s: float = 0.0
    """Time without what other processes have kept it from the CPU."""
    minibatches: int = 0

    @asynccontextmanager
    async def measured(self, gpu: SharedCpu) -> AsyncIterator[None]:
        """Add what it does meanwhile."""
        before, began_s, done = CpuTime.of(gpu.pids[OWNER]), time.monotonic(), gpu.done(OWNER)
        yield
        had = CpuTime.of(gpu.pids[OWNER]).since(before)
        self.run_s += had.run_s
        self.on_gpu_s += time.monotonic() - began_s - had.ready_s
        self.minibatches += gpu.done(OWNER) - done


async def block(gpu: SharedCpu, seconds: float) -> tuple[list[Minibatch], float]:
    """The owner's mini-batches of so long from now on, and the guest's rate."""
    began_s = time.monotonic()
    await asyncio.sleep(seconds)
    ended_s = time.monotonic()
    return gpu.owners(began_s, ended_s), gpu.rate_of_guest(began_s, ended_s)


def length_s(minibatches: Sequence[Minibatch]) -> float:
    """Of one, in the mean: most have closed gates, so that the one in the middle says nothing of what grants cost."""
    return fmean(each.took_s for each in minibatches)


async def tell_interference(gpu: SharedCpu, say: Report, rounds: int, block_s: float) -> None:
    """Line by line: a free guest, one that fills gaps, and one that coordination lets do more."""
    if not rounds:
        return
    alone_rates: list[float] = []
    alone_all = Alone()
    ratios: dict[str, list[float]] = {"free": [], "in gaps": [], "coordinated": []}
    taken: dict[str, list[float]] = {mode: [] for mode in ratios}
    rates: dict[str, list[float]] = {mode: [] for mode in ratios}
    for _ in range(rounds):
        for mode in ratios:
            await gpu.bound(GUEST, 0.0)
            await gpu.be(GUEST, "owner" if mode == "free" else "guest")
            await gpu.minibatches(OWNER, SETTLED)
            with gpu.stopped(GUEST):
                async with alone_all.measured(gpu):
                    alone, _ = await block(gpu, block_s)
            await gpu.bound(GUEST, None if mode == "coordinated" else 0.0)
            found, rate = await block(gpu, block_s)
            ratios[mode].append(length_s(found) / length_s(alone) - 1.0)
            taken[mode].append(beside(found))
            rates[mode].append(rate)
        with gpu.stopped(OWNER):
            alone_rates.append((await block(gpu, block_s))[1])
    guest_alone = median(alone_rates)
    for mode, slowed in ratios.items():
        owner_by, guest_at = median(slowed), median(rates[mode]) / guest_alone
        is_within = owner_by >= FREE_LEAST if mode == "free" else owner_by <= GUARDED_MOST and guest_at >= GUEST_LEAST
        say.row(
            f"a guest that is {mode}" if mode != "in gaps" else "a guest in gaps alone",
            owner_slowed_by=round(owner_by, 4),
            least=round(min(slowed), 4),
            most=round(max(slowed), 4),
            guest_of_alone=round(guest_at, 3),
            guest_beside_owner_cpu=round(median(taken[mode]), 3),
            within_limit=is_within and (mode != "in gaps" or median(taken[mode]) <= BESIDE_MOST),
        )
    by, at = median(ratios["coordinated"]), median(rates["coordinated"]) / guest_alone
    tell_simulated(say, alone_all, guest_alone, live_owner=1.0 / (1.0 + by), live_guest=at)


def tell_simulated(say: Report, alone: Alone, guest_per_s: float, *, live_owner: float, live_guest: float) -> None:
    """What simulated coordination makes of such a pair: speeds, each a part of the speed alone.

    The owner is as busy as its thread is: its loader and its harness take a millisecond of each gap. Live speeds are of
    wall time, and where other processes use the CPU a guest has less of the gaps than that: the row says nothing then.
    """
    minibatch_s, busy = alone.on_gpu_s / alone.minibatches, alone.run_s / alone.on_gpu_s
    owner = Demand(minibatch_s=minibatch_s, busy_ratio=min(1.0, busy), memory_bytes=GIB)
    guest = Demand(minibatch_s=1.0 / guest_per_s, busy_ratio=1.0, memory_bytes=GIB)
    settled = coordinated(CAPACITY_BYTES, owner, (guest,), News.GUEST)[-1]
    say.row(
        "the coordinated pair, live and simulated",
        owner_busy=round(busy, 3),
        owner_live=round(live_owner, 3),
        owner_simulated=round(settled.owner, 3),
        guest_live=round(live_guest, 3),
        guest_simulated=round(settled.guests[0], 3),
        within_limit=abs(live_owner - settled.owner) <= ALIKE and abs(live_guest - settled.guests[0]) <= ALIKE,
    )


async def tell_phases(gpu: SharedCpu, say: Report, phase_s: float) -> None:
    """How soon the owner is as fast as alone again, when its own work has changed."""
    if not phase_s:
        return
    await gpu.bound(GUEST, 0.0)
    await gpu.be(GUEST, "guest")
    alone_s: dict[float, float] = {}
    for factor in FACTORS:
        gpu.change(factor)
        with gpu.stopped(GUEST):
            await gpu.minibatches(OWNER, 2)
            alone_s[factor] = length_s((await block(gpu, 2 * WINDOW_S))[0])
    await gpu.bound(GUEST, None)
    for factor in FACTORS:
        gpu.change(1.0)
        await gpu.minibatches(OWNER, SETTLED)
        await asyncio.sleep(phase_s / 4)
        gpu.change(factor)
        await gpu.minibatches(OWNER, 2)
        slowed = [
            length_s((await block(gpu, WINDOW_S))[0]) / alone_s[factor] - 1.0
            for _ in range(max(1, round(phase_s / WINDOW_S)))
        ]
        late = [place + 1 for place, by in enumerate(slowed) if by > GUARDED_MOST]
        back_s = WINDOW_S * (late[-1] if late else 0)
        say.row(
            f"the owner's work times {factor:g}",
            owner_slowed_by=round(median(slowed), 4),
            least=round(min(slowed), 4),
            most=round(max(slowed), 4),
            within_4_percent_after_s=back_s if back_s < phase_s else "never",
            within_limit=back_s < min(phase_s, BACK_S),
        )


async def tell_shares(gpu: SharedCpu, say: Report, share_s: float) -> None:
    """Shares of a guest that is alone on its GPU, of wall time."""
    for share in SHARES:
        await gpu.gives(GUEST, share)
        before, began_s = CpuTime.of(gpu.pids[GUEST]), time.monotonic()
        await asyncio.sleep(share_s)
        had, took_s = CpuTime.of(gpu.pids[GUEST]).since(before), time.monotonic() - began_s
        page = gpu.page(GUEST)
        say.row(
            f"a share of {share:g} for {share_s:g} s",
            had=round(had.run_s / took_s, 4),
            waited_for_the_cpu=round(had.ready_s / took_s, 4),
            spacing_p99_ms=round(page.gate.spacing_p99_s * 1e3, 1) if page is not None and page.gate else None,
            within_limit=abs(had.run_s / took_s - share) <= SHARE_OFF,
        )


async def tell_spacing(folder: Path, say: Report, name: str) -> None:
    """How long groups of operations of an example are that no gate interrupts."""
    async with SharedCpu(folder) as gpu:
        await gpu.run(GUEST, example(name), role="guest")
        await asyncio.sleep(EXAMPLE_S)
        page = gpu.page(GUEST)
        assert page is not None and page.gate is not None
        say.row(
            f"gates of {name}",
            gates_per_minibatch=round(page.gate.gates / page.minibatches_total, 1),
            spacing_p99_ms=round(page.gate.spacing_p99_s * 1e3, 1),
            within_limit=page.gate.spacing_p99_s <= SPACING_MOST_S,
        )


async def measure(folder: Path, say: Report, options: argparse.Namespace) -> None:
    """All that needs an agent."""
    if options.rounds or options.phase_s:
        async with SharedCpu(folder / "pair") as gpu:
            await gpu.start(OWNER, COMPUTE_S, WAIT_S, role="owner")
            await gpu.start(GUEST, role="owner", packed_with=[OWNER])
            gpu.watch()
            await tell_interference(gpu, say, options.rounds, options.block_s)
            await tell_phases(gpu, say, options.phase_s)
    if options.share_s:
        async with SharedCpu(folder / "share") as gpu:
            await gpu.start(GUEST, role="guest")
            await tell_shares(gpu, say, options.share_s)
    for name in EXAMPLES:
        await tell_spacing(folder / name, say, name)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.guests")
    parser.add_argument("--rounds", type=int, default=10, help="of blocks, one of each kind; 0: none")
    parser.add_argument("--block-s", type=float, default=3.0)
    parser.add_argument("--share-s", type=float, default=30.0, help="for each share; 0: not at all")
    parser.add_argument("--phase-s", type=float, default=60.0, help="after each change of the owner's work; 0: none")
    options = parser.parse_args()
    used = in_use()
    say = Report("guests", f"Guests beside an owner{said(used)}")
    say.row("CPUs in use by others at the beginning", part=round(used, 2), within_limit=used <= BUSY)
    tell_costs(say)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder), say, options))
    say.row("load average at the end, with this", part=round(os.getloadavg()[0], 1))
    say.write()
    sys.exit(0 if say.all_within_limits() else 1)


if __name__ == "__main__":
    main()
