"""Guests without an owner trade memory on trial (AntMan, section 3.3): what raises the sum of their rates is kept.

The paper names a trial-and-error allocation and no more. A move is tried in small steps first, from each guest to each
other; one that gains too little to be kept is tried again twice and four times as wide, since gains add up.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from libs.contracts.agent import MemoryTraded
from libs.contracts.reasons import Reason
from libs.coordination.arriving import guests_of, owner_of
from libs.coordination.memory import divide, wanted_by
from libs.coordination.state import Coordination, Move, Occupant, Refusal, Trading, Trial, Window
from libs.kernel.words import bytes_of

SKIPPED = 2
"""Mini-batches after a change of limits that are not measured: memory comes home during them."""
WIDTHS = (1, 2, 4)
PATIENCE = 6
"""Windows without enough mini-batches end after so many times `trade_s`."""


def trade(state: Coordination, now_s: float) -> list[MemoryTraded]:
    """Keep `state.trading`: the split that guests have, and the trial that goes on."""
    guests = guests_of(state)
    if owner_of(state) is not None or len(guests) < 2:
        state.trading = None
        return []
    demands = {guest.task: guest.peak_bytes for guest in guests}
    trading = state.trading
    if trading is None or _has_changed(trading, demands, state.settings.demand_change):
        trading = state.trading = _anew(state, guests, demands, now_s)
    if trading.trial is None:
        _begin(state, trading, guests, now_s)
        return []
    return _go_on(state, trading, trading.trial, guests, now_s)


def _has_changed(trading: Trading, demands: dict[str, int], most: float) -> bool:
    before = trading.demands
    if before.keys() != demands.keys():
        return True
    return any(abs(now - before[task]) > most * before[task] for task, now in demands.items())


def _anew(state: Coordination, guests: list[Occupant], demands: dict[str, int], now_s: float) -> Trading:
    """An equal split, in which no guest has more than it wants while another wants more."""
    readings, before = state.present, state.trading
    parts = divide(readings.capacity_bytes - readings.reserve_bytes, [wanted_by(each, readings) for each in guests])
    best = before.best if before is not None else {}
    return Trading(
        split={guest.task: part for guest, part in zip(guests, parts, strict=True)},
        demands=demands,
        best={task: rate for task, rate in best.items() if task in demands},
        next_s=max(now_s, before.next_s) if before is not None else now_s,
    )


def _begin(state: Coordination, trading: Trading, guests: list[Occupant], now_s: float) -> None:
    ready = all(guest.seen.begun and guest.seen.limited and guest.peak_bytes for guest in guests)
    if not ready or now_s < trading.next_s or sum(trading.demands.values()) <= sum(trading.split.values()):
        return
    move = next(_moves(state, trading), None)
    if move is not None:
        trading.trial = Trial(move=move)
        trading.next_s = now_s + state.settings.trade_pause_s


def _moves(state: Coordination, trading: Trading) -> Iterator[Move]:
    """Moves that have not been refused at this split: the one that was kept last, then the narrow ones first."""
    refused = {refusal.move: refusal.gain for refusal in trading.refused}
    favoured = [trading.favoured] if trading.favoured is not None else []
    pairs = [(giver, taker) for taker in trading.split for giver in trading.split if giver != taker]
    narrow = [Move(giver=giver, taker=taker, steps=WIDTHS[0]) for giver, taker in pairs]
    wider = [
        Move(giver=giver, taker=taker, steps=steps)
        for steps in WIDTHS[1:]
        for giver, taker in pairs
        if refused.get(Move(giver=giver, taker=taker, steps=steps // 2), 0.0) > 0
    ]
    for move in (*favoured, *narrow, *wider):
        if move not in refused and _moved(state, trading, move):
            yield move


def _moved(state: Coordination, trading: Trading, move: Move) -> int:
    """Bytes that the move would move: no more than the taker can use, and none of the giver's floor."""
    capacity, numbers = state.present.capacity_bytes, state.settings
    wanted = trading.demands[move.taker] + int(numbers.grain_ratio * capacity) - trading.split[move.taker]
    to_give = trading.split[move.giver] - int(numbers.floor_ratio * capacity)
    most = min(int(move.steps * numbers.trade_ratio * capacity), wanted, to_give)
    return most if most >= numbers.grain_ratio * capacity else 0


def _go_on(
    state: Coordination, trading: Trading, trial: Trial, guests: list[Occupant], now_s: float
) -> list[MemoryTraded]:
    if trial.window is None:
        if all(_has_applied(guest, trading.split[guest.task]) for guest in guests):
            trial.window = _window(guests, now_s)
        return []
    _measure(trial.window, guests)
    if not _is_measured(state, trial.window, now_s):
        return []
    rates = _rates(trial.window)
    for task, rate in rates.items():
        trading.best[task] = max(rate, trading.best.get(task, 0.0))
    if not trial.moved_bytes:
        trial.before, trial.window = rates, None
        trial.moved_bytes = _moved(state, trading, trial.move)
        _shift(trading, trial.move, trial.moved_bytes)
        return []
    trading.trial = None
    return [_verdict(state, trading, trial, rates)]


def _has_applied(guest: Occupant, limit_bytes: int) -> bool:
    bound = guest.seen.memory_bound_bytes
    limit = limit_bytes if bound is None else min(limit_bytes, bound)
    return guest.limit_bytes == limit and not guest.unconfirmed


def _window(guests: list[Occupant], now_s: float) -> Window:
    done = {guest.task: guest.seen.minibatches for guest in guests}
    return Window(since_s=now_s, minibatches=done, durations_s={task: [] for task in done}, last=dict(done))


def _measure(window: Window, guests: list[Occupant]) -> None:
    for guest in guests:
        task, done = guest.task, guest.seen.minibatches
        if done > window.last[task] and done - window.minibatches[task] > SKIPPED:
            window.durations_s[task].append(guest.seen.last_minibatch_s)
        window.last[task] = done


def _is_measured(state: Coordination, window: Window, now_s: float) -> bool:
    numbers, took_s = state.settings, now_s - window.since_s
    if took_s >= PATIENCE * numbers.trade_s:
        return True
    done = [window.last[task] - begun - SKIPPED for task, begun in window.minibatches.items()]
    return took_s >= numbers.trade_s and min(done) >= numbers.trade_minibatches


def _rates(window: Window) -> dict[str, float]:
    """{guest: mini-batches per second}, by the median: a single slow one says nothing of memory."""
    return {
        task: 1.0 / middle if taken and (middle := median(taken)) > 0 else 0.0
        for task, taken in window.durations_s.items()
    }


def _verdict(state: Coordination, trading: Trading, trial: Trial, after: dict[str, float]) -> MemoryTraded:
    move = trial.move
    sum_before, sum_after = _sum(trading, trial.before), _sum(trading, after)
    gain = sum_after / sum_before - 1.0 if sum_before > 0 else 0.0
    kept = gain >= state.settings.trade_gain
    back = Move(giver=move.taker, taker=move.giver, steps=move.steps)
    if kept:
        trading.refused, trading.favoured = [Refusal(move=back, gain=-gain)], move
    else:
        _shift(trading, back, trial.moved_bytes)
        trading.refused.append(Refusal(move=move, gain=gain))
    return _fact(state, trial, sum_before, sum_after, gain, kept=kept)


def _sum(trading: Trading, rates: dict[str, float]) -> float:
    """Of the rates, each as a part of the guest's best."""
    return sum(rate / trading.best[task] for task, rate in rates.items() if trading.best[task] > 0)


def _shift(trading: Trading, move: Move, moved_bytes: int) -> None:
    trading.split[move.giver] -= moved_bytes
    trading.split[move.taker] += moved_bytes


def _fact(state: Coordination, trial: Trial, before: float, after: float, gain: float, *, kept: bool) -> MemoryTraded:
    taker, giver = state.occupants[trial.move.taker].seen, state.occupants[trial.move.giver].seen
    verdict = "kept" if kept else "moved back"
    message = f"{bytes_of(trial.moved_bytes)} from {giver.job_id}: the sum of rates changed by {gain:+.1%}, {verdict}"
    return MemoryTraded(
        job_id=taker.job_id,
        from_job=giver.job_id,
        node_id=state.present.node_id,
        index=state.present.index,
        moved_bytes=trial.moved_bytes,
        rates_before=round(before, 4),
        rates_after=round(after, 4),
        kept=kept,
        reason=Reason(
            code="TradeKept" if kept else "TradeTakenBack",
            message=message,
            numbers={"gain_ratio": round(gain, 4), "needed_ratio": state.settings.trade_gain},
        ),
    )
