"""The cycle: after whatever changes where jobs may be, the mechanism in force looks at the cluster as it is now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain

from libs.contracts.base import Event
from libs.contracts.runtime import TimerFired
from libs.kernel.machine import Turn
from libs.policies.table import POLICIES
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.beginning import give_up, next_limit_s, run_out
from services.placement.core.lifecycle.hearing import listeners
from services.placement.core.lifecycle.plan import carry_out
from services.placement.core.lifecycle.table import Look, Reaction, machine, reacts
from services.placement.core.mechanism import Mechanism, Moment
from services.placement.core.mechanisms.table import MECHANISMS
from services.placement.core.sharing.guests import layer as guests
from services.placement.core.sharing.guests.upgrading import unanswered, withdrawals


def decide_with(reactions: Mapping[type[Event], Reaction]) -> None:
    """Complete the table: what a job's life decides about an event comes first, then the cycle."""
    for cls, reaction in reactions.items():
        machine.decides(cls)(_decide(reaction))


def _decide(reaction: Reaction) -> Callable[[Cell, Event, Turn[Cell]], None]:
    def decide(cell: Cell, event: Event, turn: Turn[Cell]) -> None:
        look = reaction(cell, event, turn)
        if look is not None:
            schedule(cell, look, turn)

    return decide


@machine.evolves(TimerFired)
def time_is_booked(cell: Cell, event: TimerFired, now_s: float) -> list[Job]:
    """Returns the jobs that were to have begun by now."""
    cell.looked_s = now_s
    for listener in listeners:
        listener.time_passed(cell, now_s)
    return run_out(cell, now_s)


@reacts(TimerFired)
def time_has_passed(cell: Cell, event: TimerFired, turn: Turn[Cell]) -> Look:
    """A gang may accept more servers now, or has waited long enough for a reservation; a round or a slice is over."""
    for job in turn.changed:
        give_up(cell, job, turn)
    return Look()


def next_wakeup(cell: Cell) -> float | None:
    """When the passing of time alone may change a decision.

    Every moment at which one may is a candidate; those that have been looked at are over. A timer too many costs one
    pass, and none has to be remembered.
    """
    candidates = chain(_in_force(cell).moments(cell), guests.moments(cell))
    moments = [moment_s for moment_s in candidates if moment_s > cell.looked_s]
    # A pass does not look at attempts that take long to begin: the timer alone does, and forgets them then.
    if (limit_s := next_limit_s(cell)) is not None:
        moments.append(limit_s)
    return min(moments, default=None)


def schedule(cell: Cell, look: Look, turn: Turn[Cell]) -> None:
    """Carry out what the policy lets start now, then what that leaves for guests; tell the others why they wait."""
    in_force = _in_force(cell)
    if look.gpus_kept and not in_force.reassigns_paused:
        return
    # Offers that keep GPUs and have been overtaken go first: what they have kept is for the mechanism to give away.
    overtaken = list(withdrawals(cell, unanswered(cell)))
    carry_out(cell, iter(overtaken), turn)
    if overtaken or not look.guests_alone:
        _mechanism_decides(cell, in_force, turn)
    # Guests last: they get what owners leave.
    carry_out(cell, guests.step(cell, turn.now_s), turn)


def _mechanism_decides(cell: Cell, in_force: Mechanism, turn: Turn[Cell]) -> None:
    moment = Moment(turn.now_s, turn.cause_id)
    # 1. What another mechanism has left behind goes first, because the one in force does not know of it, and would
    #    find GPUs taken that nothing uses any more.
    for mechanism in MECHANISMS.values():
        if mechanism is not in_force:
            carry_out(cell, mechanism.wind_down(cell, in_force, moment), turn)
    # 2. The mechanism in force takes its step, on what is free now.
    carry_out(cell, in_force.step(cell, moment), turn)


def _in_force(cell: Cell) -> Mechanism:
    return MECHANISMS[POLICIES[cell.policy].kind]
