"""Which share of the GPU's time guests have outside of the owner's gaps (AntMan, sections 3.1.2 and 3.3).

Gaps themselves are filled without the coordinator: the owner's flag opens the guests' gates.
"""

from __future__ import annotations

from libs.coordination import ledger as ledgers
from libs.coordination.actions import SetShare
from libs.coordination.arriving import guests_of, owner_of
from libs.coordination.limits import has_to_shrink
from libs.coordination.state import Coordination, Ledger, Occupant


class Cause:
    """Why a share is what it is: codes of reasons."""

    FREE = "NoOwner"
    BEGINS = "OwnerNotStable"
    GAPS = "GapsAlone"
    """The owner's mini-batches scatter too much, or say nothing."""
    PAID = "WithinInterferenceTarget"
    SHRINKS = "OnTheWayToItsBoundary"
    """It has to apply a smaller limit, which it can at its next boundary alone: gates would keep it from that."""


def account(state: Coordination, elapsed_s: float) -> None:
    """Take in the owner's mini-batches of the time since the last step."""
    owner = owner_of(state)
    if owner is None or not owner.seen.begun or not owner.seen.gated:
        state.ledger = None
        return
    if state.ledger is None or owner.seen.minibatches < state.ledger.minibatches:
        state.ledger = ledgers.begun(owner.seen)
    guests = guests_of(state)
    share = max((guest.share_ratio for guest in guests), default=0.0)
    earns = not guests or any(_most(guest) > 0.0 for guest in guests)
    ledgers.account(state.ledger, state.settings, owner.seen, elapsed_s, share, earns=earns)


def shares(state: Coordination, now_s: float) -> list[SetShare]:
    """The shares that change now; an owner has all of its GPU's time."""
    owner, guests = owner_of(state), [guest for guest in guests_of(state) if guest.admitted]
    if owner is None:
        wanted = {guest.task: (_most(guest), Cause.FREE) for guest in guests}
    else:
        wanted = _beside(state, owner, guests, now_s)
    actions: list[SetShare] = []
    for occupant in state.occupants.values():
        if not occupant.guest:
            actions += _set(occupant, 1.0)
        elif occupant.admitted:
            share, cause = (1.0, Cause.SHRINKS) if has_to_shrink(occupant) else wanted[occupant.task]
            _note_cause(occupant, cause, now_s)
            actions += _set(occupant, share)
        else:
            actions += _set(occupant, 0.0)
    return actions


def _set(occupant: Occupant, share_ratio: float) -> list[SetShare]:
    if share_ratio == occupant.share_ratio:
        return []
    occupant.share_ratio = share_ratio
    occupant.level_tried = occupant.level_tried or share_ratio > 0
    return [SetShare(task=occupant.task, share_ratio=share_ratio)]


def open_guests(state: Coordination) -> int:
    """Guests with gates that may be open outside of gaps."""
    return sum(guest.share_ratio > 0 for guest in guests_of(state) if guest.admitted)


def _beside(state: Coordination, owner: Occupant, guests: list[Occupant], now_s: float) -> dict[str, tuple[float, str]]:
    ledger, settled = state.ledger, [guest for guest in guests if guest.settled]
    closed = {guest.task: (0.0, Cause.GAPS if guest.settled else Cause.BEGINS) for guest in guests}
    if ledger is None or not settled or not ledgers.is_stable(ledger, state.settings):
        return closed
    for guest in settled:
        _climb(state, ledger, owner, guest, now_s)
    levels = {guest.task: min(guest.level, _most(guest)) for guest in settled}
    is_open = ledgers.decide(ledger, state.settings, max(levels.values()), now_s)
    return closed | {task: (level if is_open else 0.0, Cause.PAID) for task, level in levels.items()}


def _climb(state: Coordination, ledger: Ledger, owner: Occupant, guest: Occupant, now_s: float) -> None:
    """A step up per period as long as the ledger is not overdrawn, else down to the half."""
    numbers, done = state.settings, owner.seen.minibatches
    few = done - guest.level_minibatches < numbers.share_step_minibatches
    if guest.level == 0.0:
        level = numbers.share_step
    elif few or not guest.level_tried or now_s - guest.level_s < numbers.share_step_s:
        return
    elif ledger.credit_s < 0:
        level = max(numbers.share_step, guest.level / 2)
    else:
        level = min(1.0, guest.level + numbers.share_step)
    guest.level, guest.level_s, guest.level_minibatches, guest.level_tried = round(level, 6), now_s, done, False


def _most(guest: Occupant) -> float:
    bound = guest.seen.share_bound_ratio
    return 1.0 if bound is None else bound


def _note_cause(guest: Occupant, cause: str, now_s: float) -> None:
    reported = guest.reported
    if reported.cause != cause:
        reported.cause, reported.cause_s, reported.granted_s = cause, now_s, 0.0
