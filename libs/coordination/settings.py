"""The numbers of coordination. The paper names the rules and none of these numbers but two, which say so."""

from __future__ import annotations

import msgspec


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Of one GPU."""

    floor_ratio: float = 0.02
    """Part of the GPU's memory that a guest keeps while an owner begins."""
    margin_ratio: float = 0.05
    """Part of the GPU's memory that an owner has beyond its peak,"""
    margin_of_rest_ratio: float = 0.1
    """but no more than this part of what its peak leaves: an owner that leaves little leaves guests most of that."""
    grain_ratio: float = 0.0025
    """An owner's need is rounded up to this part of the memory: smaller changes move no limit."""
    yield_s: float = 10.0
    """How long a guest may take to apply a smaller limit; then it is suspended."""
    settle_minibatches: int = 20
    """After so many an owner may count as stable,"""
    settle_scatter: float = 0.30
    """if their median absolute deviation is at most this part of their median; above it guests fill gaps alone."""
    settle_s: float = 60.0
    """After so long it counts as stable anyway."""
    peak_s: float = 60.0
    """A peak of memory counts for so long."""

    share_step: float = 0.1
    """By so much a guest's share grows per period,"""
    share_step_minibatches: int = 10
    """which is so many mini-batches of the owner,"""
    share_step_s: float = 1.0
    """and so long at least."""
    interference_target: float = 0.01
    """Part of an owner's time that guests may cost it."""
    baseline_minibatches: int = 31
    """The owner's time alone is the median of so many mini-batches with closed gates."""
    closed_ratio: float = 0.10
    """At least this part of its mini-batches has closed gates."""
    grant_s: float = 0.25
    """The longest time for which gates open."""
    credit_s: float = 20.0
    """Credit is kept for so much of the owner's time, or for two grants where that is more."""
    phase_ratio: float = 0.10
    """Three mini-batches with closed gates that differ from the median by more than this, all to one side, are a new
    phase of the owner."""

    trade_ratio: float = 0.05
    """Part of the GPU's memory that is moved on trial."""
    trade_minibatches: int = 10
    """Rates are measured over so many mini-batches of each guest,"""
    trade_s: float = 10.0
    """and so long; without so many mini-batches six times as long at most."""
    trade_gain: float = 0.02
    """A trade is kept if the sum of rates grows by this part, and by three standard errors, from each of the last six
    windows without it to each of two with it."""
    trade_pause_s: float = 60.0
    """From the beginning of one trial to that of the next."""
    demand_change: float = 0.10
    """A guest with another demand by more than this part: what was tried is forgotten."""

    strikes: int = 3
    """A guest is paced from outside after so many periods in a row in which it ran while closed or kept memory,"""
    strike_s: float = 1.0
    """each as long as this."""
    fact_s: float = 10.0
    """The log gets at most one change of a limit, and one of a share, per job and this time."""
    period_s: float = 0.1
    """From one step to the next."""


DEFAULTS = Settings()
