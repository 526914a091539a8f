"""The cycle: after whatever changes where jobs may be, the mechanism in force looks at the cluster as it is now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from libs.contracts.base import Event
from libs.contracts.runtime import TimerFired
from libs.kernel.machine import Turn
from libs.policies.policy import Kind
from libs.policies.queueing.table import QUEUE_POLICIES
from libs.policies.table import POLICIES
from services.placement.core.jobs import Job, Phase
from services.placement.core.lifecycle import waiting
from services.placement.core.lifecycle.placing import tell
from services.placement.core.lifecycle.queue import ahead_of
from services.placement.core.lifecycle.table import Look, Reaction, machine, reacts
from services.placement.core.mechanisms.queueing import walk as queueing
from services.placement.core.mechanisms.rounds import ledger
from services.placement.core.mechanisms.rounds import mechanism as rounds
from services.placement.core.mechanisms.slicing import slices as slicing
from services.placement.core.sharing.packs import unpack_all
from services.placement.core.state import State


def decide_with(reactions: Mapping[type[Event], Reaction]) -> None:
    """Complete the table: what a job's life decides about an event comes first, then the cycle."""
    for cls, reaction in reactions.items():
        machine.decides(cls)(_decide(reaction))


def _decide(reaction: Reaction) -> Callable[[State, Event, Turn[State]], None]:
    def decide(state: State, event: Event, turn: Turn[State]) -> None:
        look = reaction(state, event, turn)
        if look is not None:
            schedule(state, turn)
            if look.newcomer is not None:
                _tell_newcomer(state, look.newcomer, turn)

    return decide


@machine.evolves(TimerFired)
def time_is_booked(state: State, event: TimerFired, now_s: float) -> None:
    state.looked_s = now_s
    ledger.book(state, now_s)


@reacts(TimerFired)
def time_has_passed(state: State, event: TimerFired, turn: Turn[State]) -> Look:
    """A gang may accept more servers now, or has waited long enough for a reservation; a round or a slice is over."""
    return Look()


def next_wakeup(state: State) -> float | None:
    """When the passing of time alone may change a decision.

    Every moment at which one may is a candidate; those that have been looked at are over. A timer too many costs one
    pass, and none has to be remembered.
    """
    return min((moment_s for moment_s in _moments(state) if moment_s > state.looked_s), default=None)


def _moments(state: State) -> Iterator[float]:
    match _kind(state):
        case Kind.ORDER:
            return queueing.moments(state, QUEUE_POLICIES[state.policy])
        case Kind.SHARES:
            return rounds.moments(state)
        case Kind.TURNS:
            return slicing.moments(state)


def schedule(state: State, turn: Turn[State]) -> None:
    """Give away what the policy lets start now; tell the others why they wait."""
    kind = _kind(state)
    # 1. What another mechanism has left behind goes first, because the one in force does not know of it:
    #    packs, which would hold GPUs together for ever;
    if kind is not Kind.TURNS:
        unpack_all(state, turn)
    #    reserved nodes, which nothing would release;
    if kind is not Kind.ORDER:
        queueing.drop_reservation(state, turn)
    #    suspended jobs, which the queue does not list (rounds bring them back by their shares).
    if kind is Kind.ORDER:
        slicing.wind_down(state, turn)
    # 2. The mechanism in force takes its step, on what is free now.
    match kind:
        case Kind.ORDER:
            queueing.walk(state, QUEUE_POLICIES[state.policy], turn)
        case Kind.SHARES:
            rounds.go_on(state, turn)
        case Kind.TURNS:
            slicing.go_on(state, turn)


def _tell_newcomer(state: State, job: Job, turn: Turn[State]) -> None:
    """After a pass over the queue: a job that was not looked at, because it is behind others, is told so."""
    if job.phase is Phase.QUEUED and not job.held and not job.wait_code and _kind(state) is Kind.ORDER:
        tell(state, job, waiting.behind_others(job, ahead_of(state, job)), turn)


def _kind(state: State) -> Kind:
    return POLICIES[state.policy].kind
