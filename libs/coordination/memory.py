"""How much memory each task of a GPU is to have (AntMan, section 3.3)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from libs.coordination.arriving import guests_of, owner_of
from libs.coordination.readings import Readings
from libs.coordination.settings import Settings
from libs.coordination.state import Coordination, Occupant


class Cause:
    """Why a limit is what it is: codes of reasons."""

    ALONE = "AloneOnGpu"
    OWNERS = "NoGuestOnGpu"
    """Owners share the GPU, as where nothing coordinates: placement has packed them because they fit."""
    OWNER = "OwnerArrived"
    """An owner is beside the guests, and is not stable yet."""
    BESIDE = "OwnerStable"
    BURST = "OwnerNeedsMore"
    SHARED = "SharedByGuests"
    TRADED = "TradedOnTrial"
    BOUNDED = "BoundedByOperator"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What a task's limit is to be."""

    limit_bytes: int | None
    cause: str
    floor_bytes: int = 0
    """A guest begins with so much at least."""


def targets(state: Coordination, split: dict[str, int]) -> dict[str, Target]:
    """{task: its target}; operators' bounds count for all.

    Args:
        split: {guest: bytes} where there are several and no owner.
    """
    readings = state.present
    owner, guests = owner_of(state), guests_of(state)
    if len(state.occupants) == 1:
        wanted = {task: Target(limit_bytes=None, cause=Cause.ALONE) for task in state.occupants}
    elif not guests:
        wanted = {task: Target(limit_bytes=None, cause=Cause.OWNERS) for task in state.occupants}
    elif owner is not None:
        wanted = beside_owner(state, readings, owner, guests)
    else:
        cause = Cause.TRADED if state.trading is not None and state.trading.trial is not None else Cause.SHARED
        floor = int(state.settings.floor_ratio * readings.capacity_bytes)
        wanted = {
            task: Target(limit_bytes=limit, cause=cause, floor_bytes=min(floor, limit)) for task, limit in split.items()
        }
    return {task: _bounded(state.occupants[task], target) for task, target in wanted.items()}


def beside_owner(
    state: Coordination, readings: Readings, owner: Occupant, guests: Sequence[Occupant]
) -> dict[str, Target]:
    """Guests get what the owner leaves: their floor until it is stable, then all but its peak and a margin."""
    left = left_by(state.settings, readings, owner)
    floor = min(int(state.settings.floor_ratio * readings.capacity_bytes), left // max(1, len(guests)))
    parts = _parts(readings, guests, left, floor)
    settled = Cause.BURST if state.burst is not None else Cause.BESIDE
    found = {
        guest.task: Target(
            limit_bytes=parts[guest.task], cause=settled if guest.settled else Cause.OWNER, floor_bytes=floor
        )
        for guest in guests
    }
    others = [each for each in state.occupants.values() if not each.guest]
    rest = readings.capacity_bytes - readings.reserve_bytes - sum(parts.values())
    return {each.task: Target(limit_bytes=rest // len(others), cause=settled) for each in others} | found


def _parts(readings: Readings, guests: Sequence[Occupant], left: int, floor: int) -> dict[str, int]:
    """{guest: its part of what is left}; one without limits has what it takes, where that fits beside the others."""
    parts = {guest.task: floor for guest in guests}
    for guest in guests:
        takes = max(guest.seen.peak_bytes, guest.seen.device_bytes)
        if not guest.seen.limited and takes <= left - sum(parts.values()) + floor:
            parts[guest.task] = takes
    limited = [guest for guest in guests if guest.settled and guest.seen.limited]
    room = left - sum(parts.values()) + floor * len(limited)
    divided = divide(room, [max(floor, wanted_by(guest, readings)) for guest in limited])
    return parts | {guest.task: part for guest, part in zip(limited, divided, strict=True)}


def left_by(numbers: Settings, readings: Readings, owner: Occupant) -> int:
    """What an owner leaves to guests: the capacity without its recent peak and a margin, in whole grains."""
    capacity = readings.capacity_bytes
    grain = max(1, int(numbers.grain_ratio * capacity))
    known = owner.peak_bytes if owner.seen.limited else max(owner.peak_bytes, owner.seen.peak_bytes)
    rest = max(0, capacity - readings.reserve_bytes - known)
    margin = min(numbers.margin_ratio * capacity, numbers.margin_of_rest_ratio * rest)
    needed = grain * math.ceil((known + margin) / grain)
    return max(0, capacity - readings.reserve_bytes - needed)


def wanted_by(guest: Occupant, readings: Readings) -> int:
    """What a guest can use; the whole GPU where that is not known."""
    return guest.peak_bytes or guest.seen.peak_bytes or readings.capacity_bytes


def divide(total: int, wanted: Sequence[int]) -> list[int]:
    """Parts of a total: equal ones, but none gets more than it wants while another wants more; all is given out."""
    parts = [0] * len(wanted)
    left = total
    order = sorted(range(len(wanted)), key=lambda place: (wanted[place], place))
    for position, place in enumerate(order):
        parts[place] = min(wanted[place], left // (len(order) - position))
        left -= parts[place]
    for position, place in enumerate(order):
        more = left // (len(order) - position)
        parts[place] += more
        left -= more
    return parts


def _bounded(occupant: Occupant, target: Target) -> Target:
    most = occupant.seen.memory_bound_bytes
    if most is None or (target.limit_bytes is not None and target.limit_bytes <= most):
        return target
    return Target(limit_bytes=most, cause=Cause.BOUNDED, floor_bytes=min(target.floor_bytes, most))
