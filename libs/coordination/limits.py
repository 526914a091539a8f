"""Limits of memory reach their targets: what shrinks is told at once, what grows waits until room is confirmed.

A limit comes into force somewhere between two boundaries of a process: so a task may have what the largest of its
unconfirmed limits allows. The sum of these bounds and the reserve never exceeds the capacity because of a change that
is made here; an agent that comes after another one finds limits that may, and lets nothing grow until they do not.
Owners without a guest have no limits but operators' bounds: one's bound takes and gives nothing to another.
"""

from __future__ import annotations

from collections.abc import Mapping

from libs.coordination.actions import Admit, AnyAction, SetLimit
from libs.coordination.arriving import guests_of, owner_of
from libs.coordination.memory import Target
from libs.coordination.state import Coordination, Occupant, Told


def bound(occupant: Occupant, capacity_bytes: int) -> int:
    """The most that the task may have on the GPU by now."""
    if not occupant.admitted:
        return 0
    if not occupant.seen.limited:
        return max(occupant.seen.peak_bytes, occupant.seen.device_bytes)
    most = in_bytes(occupant.confirmed_bytes, capacity_bytes)
    for told in occupant.unconfirmed:
        most = max(most, in_bytes(told.limit_bytes, capacity_bytes))
    return most


def allowed(occupant: Occupant, capacity_bytes: int) -> int:
    """The most that it may have by what it says to have applied, whether or not it keeps to that."""
    said = [told.limit_bytes for told in occupant.unconfirmed if told.change <= occupant.seen.applied]
    open_ = [told.limit_bytes for told in occupant.unconfirmed if told.change > occupant.seen.applied]
    newest = said[-1] if said else occupant.confirmed_bytes
    return max(in_bytes(limit, capacity_bytes) for limit in (newest, *open_))


def has_to_shrink(occupant: Occupant) -> bool:
    """Whether a smaller limit than one that may be in force waits for its next boundary; never where none applies."""
    if not occupant.seen.limited:
        return False
    newest = occupant.limit_bytes
    if newest is None:
        return False
    limits = [occupant.confirmed_bytes, *[told.limit_bytes for told in occupant.unconfirmed]]
    return any(limit is None or limit > newest for limit in limits)


def in_bytes(limit_bytes: int | None, capacity_bytes: int) -> int:
    """No limit is the whole GPU."""
    return capacity_bytes if limit_bytes is None else limit_bytes


def reconcile(state: Coordination, targets: Mapping[str, Target], now_s: float) -> list[AnyAction]:
    """Bring limits closer to the targets, and admit tasks that there is room for."""
    shrunk = [
        _tell(occupant, target, target.limit_bytes, now_s)
        for task, target in targets.items()
        if (occupant := state.occupants[task]).admitted and _shrinks(state, occupant, target)
    ]
    return [*shrunk, *_grow(state, targets, now_s), *_admit(state, targets, now_s)]


def _shrinks(state: Coordination, occupant: Occupant, target: Target) -> bool:
    capacity = state.present.capacity_bytes
    return in_bytes(target.limit_bytes, capacity) < in_bytes(occupant.limit_bytes, capacity)


def _grow(state: Coordination, targets: Mapping[str, Target], now_s: float) -> list[AnyAction]:
    actions: list[AnyAction] = []
    changing = [
        occupant
        for task, occupant in state.occupants.items()
        if occupant.admitted and targets[task].limit_bytes != occupant.limit_bytes
    ]
    for occupant in _owner_first(changing):
        target = targets[occupant.task]
        limit = _within(state, occupant, target.limit_bytes)
        if _is_worth_it(state, occupant, target, limit):
            actions.append(_tell(occupant, target, limit, now_s))
    return actions


def _admit(state: Coordination, targets: Mapping[str, Target], now_s: float) -> list[AnyAction]:
    actions: list[AnyAction] = []
    waiting = [each for each in state.occupants.values() if not (each.admitted or each.seen.begun)]
    for occupant in _owner_first(waiting):
        target = targets[occupant.task]
        if not _may_begin(state, occupant, target):
            continue
        limit = _within(state, occupant, target.limit_bytes)
        actions.append(_tell(occupant, target, limit, now_s))
        # It has none of the earlier limits: its processes begin with this one, or go on with it.
        occupant.confirmed_bytes, occupant.unconfirmed, occupant.took_s = limit, [], 0.0
        occupant.admitted, occupant.yielded = True, False
        actions.append(Admit(task=occupant.task))
    return actions


def _may_begin(state: Coordination, occupant: Occupant, target: Target) -> bool:
    """Whether there is room: for an owner all that is its own, for a guest what it needs to begin."""
    room = _room(state)
    if not occupant.guest:
        return not guests_of(state) or room >= in_bytes(target.limit_bytes, state.present.capacity_bytes)
    if occupant.yielded and owner_of(state) is not None and not occupant.settled:
        return False
    needed = occupant.seen.peak_bytes if not occupant.seen.limited else target.floor_bytes
    return room >= needed and in_bytes(target.limit_bytes, state.present.capacity_bytes) >= needed


def _within(state: Coordination, occupant: Occupant, limit_bytes: int | None) -> int | None:
    """As much of a limit as there is room for; no more than it has been told where there is less than none."""
    if not guests_of(state):
        return limit_bytes
    capacity, room = state.present.capacity_bytes, _room(state)
    most = bound(occupant, capacity)
    most = most + room if room >= 0 else min(most, in_bytes(occupant.limit_bytes, capacity))
    return limit_bytes if in_bytes(limit_bytes, capacity) <= most else most


def _is_worth_it(state: Coordination, occupant: Occupant, target: Target, limit: int | None) -> bool:
    """Whether the limit grows up to its target, or by a grain."""
    if limit == target.limit_bytes:
        return True
    capacity = state.present.capacity_bytes
    gained = in_bytes(limit, capacity) - in_bytes(occupant.limit_bytes, capacity)
    return gained >= max(1, state.grain_bytes)


def _tell(occupant: Occupant, target: Target, limit_bytes: int | None, now_s: float) -> SetLimit:
    occupant.change += 1
    occupant.limit_bytes, occupant.cause = limit_bytes, target.cause
    occupant.unconfirmed.append(Told(change=occupant.change, limit_bytes=limit_bytes, at_s=now_s))
    return SetLimit(task=occupant.task, limit_bytes=limit_bytes, change=occupant.change)


def _owner_first(occupants: list[Occupant]) -> list[Occupant]:
    return sorted(occupants, key=lambda occupant: occupant.guest)


def _room(state: Coordination) -> int:
    capacity = state.present.capacity_bytes
    reserve = state.present.reserve_bytes if len(state.occupants) > 1 else 0
    return capacity - reserve - sum(bound(each, capacity) for each in state.occupants.values())
