"""A guest whose memory does not leave in time by a smaller limit leaves the GPU itself, which its owner needs."""

from __future__ import annotations

from collections.abc import Mapping

from libs.coordination.actions import AnyAction, Stop, Suspend
from libs.coordination.arriving import guests_of, owner_of
from libs.coordination.limits import bound, in_bytes
from libs.coordination.memory import Target
from libs.coordination.state import Coordination, Occupant


def overdue(state: Coordination, targets: Mapping[str, Target], now_s: float) -> list[AnyAction]:
    """Guests that keep an owner waiting are suspended, and stopped where their memory cannot leave the GPU."""
    owner = owner_of(state)
    if owner is None:
        return []
    actions: list[AnyAction] = []
    for guest in guests_of(state):
        if guest.yielded:
            if guest.seen.stuck:
                why = f"its memory cannot be taken off the GPU that {owner.seen.job_id} needs"
                actions.append(Stop(task=guest.task, why=why))
        elif guest.admitted and _is_late(state, owner, guest, targets[guest.task], now_s):
            guest.yielded = True
            limit_s = state.settings.yield_s
            why = f"{owner.seen.job_id} needs its memory, and what exceeds its limit has not left in {limit_s:g} s"
            actions.append(Suspend(task=guest.task, why=why))
    return actions


def patience(state: Coordination) -> list[tuple[float, float]]:
    """(Since when, for how long) guests have had time to make room for their owner."""
    owner = owner_of(state)
    if owner is None:
        return []
    staying = [guest for guest in guests_of(state) if guest.admitted and not guest.yielded]
    late = [guest for guest in staying if guest.unconfirmed or not guest.seen.limited]
    return [(_told_s(owner, guest), state.settings.yield_s) for guest in late]


def _told_s(owner: Occupant, guest: Occupant) -> float:
    return max(guest.unconfirmed[0].at_s if guest.unconfirmed else guest.since_s, owner.since_s)


def _is_late(state: Coordination, owner: Occupant, guest: Occupant, target: Target, now_s: float) -> bool:
    capacity = state.present.capacity_bytes
    if bound(guest, capacity) <= in_bytes(target.limit_bytes, capacity):
        return False
    return now_s - _told_s(owner, guest) >= state.settings.yield_s
