"""Guests without an owner trade memory, on a model; nine splits are the reference."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from libs.contracts.agent import MemoryTraded
from tests.unit.coordination.model import CAPACITY, Gpu, Job

DEMAND = int(CAPACITY / 1.4)
"""Of each of two guests: together the GPU has 70 % of it."""
MINUTE = 60.0

Slowed = Callable[[float], float]


def sensitive(times: float, power: float = 1.0) -> Slowed:
    return lambda missing: 1.0 + times * missing**power


def rates(slowed: list[Slowed], parts: list[float]) -> float:
    """Sum of the rates, each over its best, of guests with these parts of the GPU."""
    return sum(1.0 / slow(max(0.0, 1.0 - part * CAPACITY / DEMAND)) for slow, part in zip(slowed, parts, strict=True))


def run(slowed: list[Slowed], demand: int = DEMAND, minutes: float = 10.5) -> tuple[list[float], list[MemoryTraded]]:
    """The parts of the GPU that guests have in the end, and their trades."""
    jobs = [Job(f"g{place}", wanted=lambda number: demand, slowed_by_host=slow) for place, slow in enumerate(slowed)]
    gpu = Gpu(*jobs)
    gpu.run(minutes * MINUTE)
    assert gpu.state.trading is not None
    ended_s = [at_s for at_s, fact in gpu.facts if isinstance(fact, MemoryTraded)]
    assert all(after - before > 25.0 for before, after in pairwise(ended_s)), "one a minute, of 20 to 55 s"
    return [part / CAPACITY for part in gpu.state.trading.split.values()], trades_of(gpu)


def trades_of(gpu: Gpu) -> list[MemoryTraded]:
    return [fact for fact in gpu.of(MemoryTraded) if isinstance(fact, MemoryTraded)]


@pytest.mark.parametrize(
    "slowed",
    [
        [sensitive(0.3), sensitive(6.0)],
        [sensitive(5.0, 0.5), sensitive(0.25, 2.0)],
        [sensitive(0.1), sensitive(0.4)],
        [sensitive(3.0), sensitive(3.0)],
    ],
    ids=["a little and much", "at once and late", "hardly", "alike, and one whole is better than two halves"],
)
def test_ten_trials_find_a_split_as_good_as_the_best_of_nine(slowed: list[Slowed]):
    parts, trades = run(slowed)
    assert len(trades) <= 11
    best = max(rates(slowed, [tenths / 10, 1 - tenths / 10]) for tenths in range(1, 10))
    assert rates(slowed, parts) >= rates(slowed, [0.5, 0.5])
    assert rates(slowed, parts) >= 0.95 * best
    for trade in trades:
        assert trade.kept is (trade.reason.numbers["gain_ratio"] >= trade.reason.numbers["needed_ratio"] >= 0.02)
        assert trade.reason.numbers["gain_ratio"] == pytest.approx(trade.rates_after / trade.rates_before - 1, abs=1e-3)


def test_of_three_identical_guests_no_trade_is_kept():
    parts, trades = run([sensitive(2.0, 2.0)] * 3, demand=int(CAPACITY / 2.1))
    assert trades and not any(trade.kept for trade in trades)
    assert parts == pytest.approx([1 / 3] * 3, abs=0.001)


def on_a_machine(
    slower: Callable[[float], float], slowed: list[Slowed], demand: int, seed: int, noise: float, minutes: float = 20.0
) -> list[MemoryTraded]:
    """Trades of guests with mini-batches that take so many times as long at a time, beside their own noise."""
    jobs = [
        Job(
            f"g{place}",
            minibatch_s=lambda now_s: 0.2 * slower(now_s),
            wanted=lambda number: demand,
            slowed_by_host=slow,
            noise=noise,
        )
        for place, slow in enumerate(slowed)
    ]
    gpu = Gpu(*jobs, seed=seed)
    gpu.run(minutes * MINUTE)
    return trades_of(gpu)


def drifting(seed: int, deviation: float = 0.04, correlation_s: float = 20.0) -> Callable[[float], float]:
    """A machine that is faster and slower by a standard deviation of so much, which is correlated over so long."""
    source, levels, kept = random.Random(seed), [0.0], math.exp(-1.0 / correlation_s)
    for _ in range(round(20 * MINUTE) + 1):
        levels.append(kept * levels[-1] + source.gauss(0.0, deviation * math.sqrt(1.0 - kept**2)))
    return lambda now_s: 1.0 + levels[int(now_s)]


@pytest.mark.parametrize("seed", range(6))
def test_on_a_machine_that_is_more_and_less_busy_identical_guests_keep_no_trade(seed: int):
    source = random.Random(seed)
    slower = [source.uniform(1.0, 1.1) for _ in range(1000)]
    alike = [sensitive(2.0, 2.0)] * 3
    trades = on_a_machine(lambda now_s: slower[int(now_s / 7.0)], alike, int(CAPACITY / 2.1), seed, noise=0.1)
    assert len(trades) >= 6 and not any(trade.kept for trade in trades)


def test_where_rates_of_the_same_split_drift_identical_guests_hardly_ever_keep_a_trade():
    alike = [sensitive(2.0, 2.0)] * 3
    trades = [
        trade
        for seed in range(100, 112)
        for trade in on_a_machine(drifting(seed), alike, int(CAPACITY / 2.1), seed, noise=0.01, minutes=7.5)
    ]
    assert len(trades) >= 70
    assert sum(trade.kept for trade in trades) <= 1


@pytest.mark.parametrize("seed", range(6))
def test_where_rates_of_the_same_split_drift_a_gain_of_a_tenth_is_kept(seed: int):
    unlike = [sensitive(0.1), sensitive(20.0)]
    trades = on_a_machine(drifting(seed, 0.02), unlike, DEMAND, seed, noise=0.01, minutes=6.5)
    kept = [trade for trade in trades if trade.kept]
    assert kept and all(trade.from_job == "g0" for trade in kept)


def test_windows_are_kept_for_later_trials_of_the_same_split_alone():
    gpu = Gpu(*(Job(name, wanted=lambda number: DEMAND, slowed_by_host=sensitive(3.0)) for name in ("a", "b")))
    counts: list[tuple[int, int]] = []
    while not any(trade.kept for trade in trades_of(gpu)):
        gpu.run(1.0)
        trading = gpu.state.trading
        assert trading is not None
        found = len(trading.without_move), len(trading.trial.with_move) if trading.trial is not None else 0
        counts += [found] if counts[-1:] != [found] else []
    refused = len(trades_of(gpu)) - 1
    assert counts[:4] == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert counts[-4:] == [(refused + 3, 0), (refused + 3, 1), (refused + 4, 1), (2, 0)]


def test_a_trade_is_kept_once_what_was_before_was_tried_again():
    slower = {"now": 1.0}
    jobs = [
        Job(name, minibatch_s=lambda now_s: 0.1 * slower["now"], wanted=lambda number: DEMAND, slowed_by_host=slow)
        for name, slow in (("a", sensitive(0.3)), ("b", sensitive(0.3)))
    ]
    gpu = Gpu(*jobs)
    while gpu.state.trading is None or gpu.state.trading.trial is None or not gpu.state.trading.trial.is_moved:
        gpu.run(1.0)
    slower["now"] = 0.8  # all is faster from now on, with the move and without it
    while not gpu.of(MemoryTraded):
        gpu.run(1.0)
    (trade,) = gpu.of(MemoryTraded)
    assert isinstance(trade, MemoryTraded) and not trade.kept
    assert trade.reason.numbers["gain_ratio"] < 0.02


def test_guests_that_fit_do_not_trade():
    parts, trades = run([sensitive(3.0), sensitive(0.3)], demand=CAPACITY // 2, minutes=3.0)
    assert trades == [] and parts == [0.5, 0.5]


def test_a_guest_that_comes_ends_the_trial_and_shares_anew():
    jobs = [Job(name, wanted=lambda number: DEMAND, slowed_by_host=sensitive(3.0)) for name in ("a", "b")]
    gpu = Gpu(*jobs)
    gpu.run(15.0)
    assert gpu.state.trading is not None and gpu.state.trading.trial is not None
    gpu.jobs.append(Job("c", wanted=lambda number: DEMAND, slowed_by_host=sensitive(3.0)))
    gpu.run(5.0)
    assert [job.begun for job in gpu.jobs] == [True] * 3
    assert {job.limit for job in gpu.jobs} <= {CAPACITY // 3, CAPACITY // 3 + 1}
