"""How fast jobs compute on one GPU together, each as a part of its speed alone.

A mini-batch needs the GPU for a part of its time (`busy_ratio`) and leaves it idle for the rest. Without gates, jobs
that want the GPU at the same time share it by their weights. With gates, guests have an owner's gaps, and outside of
these the share that they are given. It is a model: mean values, no single kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from libs.sim.sharing.costs import GATE_S, LEDGER_RATIO
from libs.sim.sharing.demands import Demand

ROUNDS = 60
"""Of the fixed point; it halves its error in each, so that results are the same on any machine."""


def packed(demands: Sequence[Demand], open_ratios: Sequence[float] | None = None) -> list[float]:
    """Speeds of jobs with kernels that are not held back, or only a part of the time (`open_ratios`).

    A job in the part of its mini-batch that needs the GPU has w / (w + sum of p w of the others) of it, where p is the
    part of the time in which each of these wants it.
    """
    opened = open_ratios or [1.0] * len(demands)
    speeds = [1.0] * len(demands)
    for _ in range(ROUNDS):
        wanting = [
            opened[place] * (1.0 - speed * (1.0 - demand.busy_ratio))
            for place, (demand, speed) in enumerate(zip(demands, speeds, strict=True))
        ]
        against = [want * demand.weight for want, demand in zip(wanting, demands, strict=True)]
        total = sum(against)
        speeds = [
            (speed + _speed(demand, (total - own) / demand.weight)) / 2
            for demand, speed, own in zip(demands, speeds, against, strict=True)
        ]
    return speeds


def _speed(demand: Demand, contention: float) -> float:
    """With so much of others' weight against it per unit of its own."""
    return 1.0 / (demand.busy_ratio * (1.0 + contention) + 1.0 - demand.busy_ratio)


class Contended(NamedTuple):
    """What comes of an owner's GPU outside of its gaps."""

    owner_speed: float
    taken: float
    """The part of the GPU's time that guests have there."""


def competition(owner: Demand, guests: Sequence[Demand]) -> float:
    """How much of the GPU guests get for each part that the owner gets, while both have kernels to run."""
    return sum(guest.weight * guest.busy_ratio for guest in guests if guest.computes) / owner.weight


def contended(owner: Demand, against: float, share: float) -> Contended:
    """While gates outside of the owner's gaps are open for a share of the time.

    Args:
        owner: what it asks for.
        against: how strongly guests compete with it, by `competition`; 0: none of them computes.
        share: from 0 to 1.
    """
    if not owner.computes or not against:
        return Contended(1.0, 0.0)
    kept = owner.busy_ratio * (1.0 + share * against) + 1.0 - owner.busy_ratio
    overrun = _edge(owner) if _gaps(owner) else 0.0
    speed = 1.0 / (kept + overrun + LEDGER_RATIO.value)
    return Contended(speed, owner.busy_ratio * share * against * speed)


def _edge(owner: Demand) -> float:
    """What is lost at one end of a gap, by the owner's mini-batch."""
    return GATE_S.value / owner.minibatch_s if owner.computes else 0.0


def _gaps(owner: Demand) -> float:
    """What guests have of the owner's gaps, by its mini-batch; 0 where these are too short for them."""
    return max(0.0, 1.0 - owner.busy_ratio - 2 * _edge(owner))


def of_guests(owner: Demand, guests: Sequence[Demand], taken: float) -> list[float]:
    """Speeds of guests that have the owner's gaps and so much of the GPU's time outside of these."""
    found = _divided(_gaps(owner) + taken, [guest.busy_ratio for guest in guests])
    return [
        min(1.0, part / guest.busy_ratio) if guest.computes else 1.0 for guest, part in zip(guests, found, strict=True)
    ]


def _divided(time: float, wanted: Sequence[float]) -> list[float]:
    """The GPU's time in equal parts, but none gets more than it wants while another one wants more."""
    parts, left = [0.0] * len(wanted), time
    order = sorted(range(len(wanted)), key=lambda place: (wanted[place], place))
    for position, place in enumerate(order):
        parts[place] = min(wanted[place], left / (len(order) - position))
        left -= parts[place]
    return parts
