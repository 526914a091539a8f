"""What the policy in force does with the cluster as it is now."""

from __future__ import annotations

from libs.contracts.introspection import PackFailed
from libs.contracts.placement import JobUnpacked
from libs.contracts.runtime import TimerFired
from libs.kernel.machine import Turn
from libs.policies.queueing.table import QUEUE_POLICIES
from libs.policies.slicing.table import SLICING_POLICIES
from services.placement.core import queue_pass, waiting
from services.placement.core.placing import tell
from services.placement.core.queue import ahead_of
from services.placement.core.rounds import ledger, mechanism
from services.placement.core.slicing import slices
from services.placement.core.slicing.packs import unpack_all
from services.placement.core.state import Job, Phase, State
from services.placement.core.table import machine


@machine.evolves(TimerFired)
def time_is_booked(state: State, event: TimerFired, now_s: float) -> None:
    state.looked_s = now_s
    ledger.book(state, now_s)


@machine.decides(TimerFired)
def time_has_passed(state: State, event: TimerFired, turn: Turn[State]) -> None:
    """A gang may accept more servers now, or has waited long enough for a reservation; a round is over."""
    schedule(state, turn)


def next_wakeup(state: State) -> float | None:
    """When the passing of time alone may change a decision.

    Every moment at which one may is a candidate; those that have been looked at are over. A timer too many costs one
    pass, and none has to be remembered.
    """
    policy = QUEUE_POLICIES.get(state.policy)
    if policy is not None:
        moments = queue_pass.moments(state, policy)
    elif state.policy in SLICING_POLICIES:
        moments = slices.moments(state)
    else:
        moments = mechanism.moments(state)
    return min((moment_s for moment_s in moments if moment_s > state.looked_s), default=None)


def schedule(state: State, turn: Turn[State]) -> None:
    """Give away what the policy lets start now; tell the others why they wait."""
    if state.policy in SLICING_POLICIES:
        queue_pass.drop_reservation(state, turn)
        slices.go_on(state, turn)
        return
    unpack_all(state, turn)
    policy = QUEUE_POLICIES.get(state.policy)
    if policy is None:
        queue_pass.drop_reservation(state, turn)
        mechanism.go_on(state, turn)
    else:
        slices.wind_down(state, turn)
        queue_pass.walk(state, policy, turn)


def tell_newcomer(state: State, job: Job, turn: Turn[State]) -> None:
    """After a pass: a job that was not looked at, because it is behind others, is told so."""
    if job.phase is Phase.QUEUED and not job.held and not job.wait_code and state.policy in QUEUE_POLICIES:
        tell(state, job, waiting.behind_others(job, ahead_of(state, job)), turn)


@machine.decides(PackFailed)
def undo_the_pack(state: State, event: PackFailed, turn: Turn[State]) -> None:
    """They take turns again, unless they have been parted meanwhile."""
    if state.partners.get(event.job_id) == event.with_job:
        turn.emit(JobUnpacked(job_id=event.job_id, with_job=event.with_job, reason=event.reason))
        schedule(state, turn)
