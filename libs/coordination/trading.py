"""Guests without an owner trade memory on trial (AntMan, section 3.3): what raises the sum of their rates is kept.

The paper names a trial-and-error allocation and no more. A move is tried in small steps first, from each guest to each
other; one that loses nothing, and gains too little to be kept, is tried again twice and four times as wide, since gains
add up.

Rates of the same split differ from one window of time to the next by more than their mini-batches scatter: the machine
is more and less busy, and guests with equal periods collide for a while. So windows are the samples. A trial measures
without the move, with it, without it and with it, and the move is kept when each window with it gains over each of the
last ones without it, those of earlier trials of the same split included; the first trial begins with three of these.
The first window that does not gain ends a trial.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from libs.contracts.agent import MemoryTraded
from libs.contracts.reasons import Reason
from libs.coordination.arriving import guests_of, owner_of
from libs.coordination.ledger import scatter
from libs.coordination.memory import divide, wanted_by
from libs.coordination.settings import Settings
from libs.coordination.state import Coordination, Move, Occupant, Rates, Refusal, Trading, Trial, Window
from libs.kernel.words import bytes_of

SKIPPED = 2
"""Mini-batches after a change of limits that are not measured: memory comes home during them."""
WIDTHS = (1, 2, 4)
PATIENCE = 6
"""Windows without enough mini-batches end after so many times `trade_s`."""
ERROR_OF_MEDIAN = 1.4826 * 1.2533
"""Standard error of a median, times the root of the number of samples, by their median absolute deviation: of normally
distributed ones."""
SCATTERS = 3
"""Fewer mini-batches do not say by how much they scatter."""
GAIN_DIGITS = 6
"""What moves gain is known no better: of what neither gains nor loses the sign is chance."""
ERRORS = 3.0
"""A gain counts if it is so many times its standard error."""
WITH_MOVE = 2
"""Windows with the move that a trial measures, each after one without it."""
WITHOUT_MOVE, BEFORE_MOVE = 6, 3
"""Of the windows without it so many count, the last ones; there are so many before the first with it."""


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


def split_of(trading: Trading) -> dict[str, int]:
    """{guest: bytes} by what has been kept: without the move that is being tried."""
    found, trial = dict(trading.split), trading.trial
    if trial is not None and trial.is_moved:
        found[trial.move.giver] += trial.moved_bytes
        found[trial.move.taker] -= trial.moved_bytes
    return found


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
        trading.trial = Trial(move=move, moved_bytes=_moved(state, trading, move))
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
        if refused.get(Move(giver=giver, taker=taker, steps=steps // 2), -1.0) >= 0
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
    _note(trading, trial, _rates(trial.window))
    trial.window = None
    gains = _gains(state.settings, trading, trial)
    if not all(gain.counts for gain in gains) or len(trial.with_move) == WITH_MOVE:
        return [_verdict(state, trading, trial, gains)]
    if len(trading.without_move) >= BEFORE_MOVE:
        _turn(trading, trial)
    return []


def _note(trading: Trading, trial: Trial, rates: Rates) -> None:
    for task, rate in rates.per_s.items():
        trading.best[task] = max(rate, trading.best.get(task, 0.0))
    if trial.is_moved:
        trial.with_move.append(rates)
    else:
        trading.without_move = [*trading.without_move, rates][-WITHOUT_MOVE:]


def _turn(trading: Trading, trial: Trial) -> None:
    """Make the move where the split in force is without it, else take it back."""
    moved_bytes = -trial.moved_bytes if trial.is_moved else trial.moved_bytes
    trading.split[trial.move.giver] -= moved_bytes
    trading.split[trial.move.taker] += moved_bytes
    trial.is_moved = not trial.is_moved


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


def _rates(window: Window) -> Rates:
    """By the median: a single slow mini-batch says nothing of memory."""
    per_s = {
        task: 1.0 / middle if taken and (middle := median(taken)) > 0 else 0.0
        for task, taken in window.durations_s.items()
    }
    return Rates(per_s=per_s, errors={task: _error(taken) for task, taken in window.durations_s.items()})


def _error(durations_s: Sequence[float]) -> float:
    """Standard error of the rate, as a part of it; all of it where too few mini-batches say how large."""
    if len(durations_s) < SCATTERS:
        return 1.0
    return ERROR_OF_MEDIAN * scatter(durations_s) / math.sqrt(len(durations_s))


class Gain(NamedTuple):
    """What a move has changed."""

    sum_before: float
    sum_after: float
    ratio: float
    """Of the sum of rates."""
    needed: float
    """So much has to be gained for the move to be kept."""

    @property
    def counts(self) -> bool:
        """Whether it is kept."""
        return self.ratio >= self.needed


def _gains(numbers: Settings, trading: Trading, trial: Trial) -> list[Gain]:
    """Of each window with the move over each one without it."""
    return [_gain(numbers, trading, before, after) for after in trial.with_move for before in trading.without_move]


def _gain(numbers: Settings, trading: Trading, before: Rates, after: Rates) -> Gain:
    """Of one window over another."""
    without, error = _sum(trading, before)
    moved, moved_error = _sum(trading, after)
    ratio = moved / without - 1.0 if without > 0 else 0.0
    relative = math.hypot(error / without, moved_error / moved) if without > 0 and moved > 0 else 0.0
    return Gain(without, moved, ratio, max(numbers.trade_gain, ERRORS * relative))


def _sum(trading: Trading, rates: Rates) -> tuple[float, float]:
    """Of the rates, each as a part of the guest's best; and its standard error."""
    parts = {task: rate / trading.best[task] for task, rate in rates.per_s.items() if trading.best[task] > 0}
    return sum(parts.values()), math.hypot(*(part * rates.errors[task] for task, part in parts.items()))


def _verdict(state: Coordination, trading: Trading, trial: Trial, gains: Sequence[Gain]) -> MemoryTraded:
    """The end of a trial: the gain that counts the least decides, and that in the middle says whether to try more.

    What was measured with a split that is no longer in force is forgotten.
    """
    least = min(gains, key=lambda gain: gain.ratio - gain.needed)
    trading.trial = None
    if least.counts:
        trading.refused, trading.favoured = [Refusal(move=_back(trial.move), gain=-least.ratio)], trial.move
        trading.without_move = trial.with_move
    else:
        trading.refused.append(Refusal(move=trial.move, gain=round(median(gain.ratio for gain in gains), GAIN_DIGITS)))
        if trial.is_moved:
            _turn(trading, trial)
    return _fact(state, trial, least)


def _back(move: Move) -> Move:
    return Move(giver=move.taker, taker=move.giver, steps=move.steps)


def _fact(state: Coordination, trial: Trial, gain: Gain) -> MemoryTraded:
    taker, giver = state.occupants[trial.move.taker].seen, state.occupants[trial.move.giver].seen
    verdict = "kept" if gain.counts else "moved back"
    change = f"the sum of rates changed by {gain.ratio:+.1%}, {gain.needed:.1%} needed"
    return MemoryTraded(
        job_id=taker.job_id,
        from_job=giver.job_id,
        node_id=state.present.node_id,
        index=state.present.index,
        moved_bytes=trial.moved_bytes,
        rates_before=round(gain.sum_before, 4),
        rates_after=round(gain.sum_after, 4),
        kept=gain.counts,
        reason=Reason(
            code="TradeKept" if gain.counts else "TradeTakenBack",
            message=f"{bytes_of(trial.moved_bytes)} from {giver.job_id}: {change}, {verdict}",
            numbers={"gain_ratio": round(gain.ratio, 4), "needed_ratio": round(gain.needed, 4)},
        ),
    )
